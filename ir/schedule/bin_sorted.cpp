// The step bin_sorted: what a scatter adds, sorted by ranges of destinations by the threads of a GPU's blocks, a run of
// iterations at a time.
#include <bit>
#include <limits>

#include "gradloom/builder.h"
#include "gradloom/schedule.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/block_sort.h"
#include "ir/schedule/grouping.h"

namespace gradloom::ir {
namespace {

// A key is bin * run + place in the run: keys are unique, and their order is that of bins, then of iterations. Those of
// iterations without a destination are past all bins.
class SortedBin : public Grouping {
 public:
  SortedBin(const Site& site, const Buffer& buffer, int64_t size, int64_t run)
      : Grouping("bin_sorted", site, buffer), bin_(size), run_(run) {
    update_ = scatter_.tail.as<Accumulate>();
    if (!update_)
      refuse(step_, loop_.var.name, "an iteration adds more than one value: it holds a loop or a condition");
    const std::optional<int64_t> n = as_int(folded(bounds_.extent)), extent = as_int(scatter_.destination[0].extent);
    if (!n || !extent)
      refuse(step_, loop_.var.name, "the numbers of its iterations and destinations are not constants");
    const auto ceil = [](int64_t a, int64_t b) { return a / b + (a % b != 0); };
    runs_ = std::max<int64_t>(ceil(*n, run), 1), bins_ = std::max<int64_t>(ceil(*extent, size), 1);
    const int64_t most = std::numeric_limits<int32_t>::max();
    if (bins_ >= most / run)
      refuse(step_, loop_.var.name, "a key cannot hold its bin and its place in a run in 32 bits");
    const __int128 bytes = __int128{runs_} * (__int128{run} * 16 + (bins_ + 1) * 4);
    if (bytes > Schedule::max_table_bytes)
      refuse(step_, loop_.var.name,
             "its records of the destinations in " + buffer->name + " would take " +
                 std::to_string(static_cast<int64_t>(bytes / 1'000'000'000)) + " GB");
    begin_ = table("_begin", DType::i32, {bins_ + 1, runs_}, run);
    for (size_t d = 0; d < scatter_.destination.size(); ++d) {
      const Expr last = index_sub(scatter_.destination[d].extent, 1);
      records_.push_back(table("_at", d == 0 ? DType::i32 : DType::i64, {runs_ * run}, d == 0 ? Expr(size - 1) : last));
      places_.push_back(table("_place", d == 0 && *extent <= most ? DType::i32 : DType::i64, {run}, last));
    }
    for (const Expr& value : {update_->value, update_->factor})
      if (value)
        records_.push_back(
            table(value.same_as(update_->value) ? "_value" : "_factor", value.dtype(), {runs_ * run}, {}));
  }

  Stmt nest(Schedule::SortedBins& handles) const {
    KernelBuilder b("bin");
    sort(b, handles);
    sum(b, handles);
    Stmt all = b.build().body;
    for (size_t i = records_.size(); i-- > 0;) all = alloc(records_[i], all);
    return bounds_.wrap(alloc(begin_, all));
  }

 private:
  std::string named(const char* what) const { return loop_.var.name + what; }
  Buffer table(const char* what, DType dtype, std::vector<Expr> dims, const Expr& most) const {
    Facts facts;
    if (most) facts = {.min = 0, .max = most};
    return make_buffer({.name = update_->buffer->name + what,
                        .dtype = dtype,
                        .dims = std::move(dims),
                        .role = Role::temp,
                        .alignment = 64,
                        .facts = facts});
  }

  void sort(KernelBuilder& b, Schedule::SortedBins& handles) const {
    handles.runs = b.loop(named("_run"), 0, runs_, [&](Expr run) {
      const Buffer own = b.alloc("own", DType::i32, {run_}, {.min = 0, .exclusive = true});
      std::vector<Buffer> places;
      for (const Buffer& p : places_) places.push_back(b.alloc(p->name, p->dtype, p->dims, p->facts));
      handles.run = {fill(b, run, own, places), author_block_sort(b, own, run_), keep(b, run, own, places),
                     find_first(b, run, own)};
    });
  }

  Loop fill(KernelBuilder& b, const Expr& run, const Buffer& own, const std::vector<Buffer>& places) const {
    return b.loop(named("_fill"), 0, run_, [&](Expr i) {
      const Expr number = b.let("number", run * run_ + i);
      b.store(own, {i}, cast(DType::i32, i + bins_ * run_));
      for (const Buffer& p : places) b.store(p, {i}, constant_int(p->dtype, 0));
      b.if_then(number < bounds_.extent, [&] {
        const Stmt key = scatter_.around([&](const std::vector<Expr>& at) {
          std::vector<Stmt> stmts{store(own, {i}, cast(DType::i32, index_div(at[0], bin_) * run_ + i))};
          for (size_t d = 0; d < at.size(); ++d)
            stmts.push_back(store(places[d], {i}, places[d]->dtype == DType::i64 ? at[d] : cast(DType::i32, at[d])));
          return block(std::move(stmts));
        });
        b.append(substitute(key, {{loop_.var.id, index_add(bounds_.begin, number)}}));
      });
    });
  }

  // Records, in the order of keys.
  Loop keep(KernelBuilder& b, const Expr& run, const Buffer& own, const std::vector<Buffer>& places) const {
    return b.loop(named("_keep"), 0, run_, [&](Expr i) {
      const Expr key = b.let("key", i64(load(own, {i})));
      const Expr bin = b.let("of_bin", floor_div(key, Expr(run_))), at = b.let("position", floor_mod(key, Expr(run_)));
      const Expr number = b.let("number", run * run_ + at);
      b.if_then((bin < bins_) & (number < bounds_.extent), [&] {
        Substitution known{{loop_.var.id, index_add(bounds_.begin, number)}};
        const Expr to = run * run_ + i;
        std::vector<Stmt> stmts;
        for (size_t d = 0; d < places.size(); ++d) {
          const Expr place = i64(load(places[d], {at}));
          known[scatter_.destination[d].at.id] = place;
          stmts.push_back(store(records_[d], {to}, d == 0 ? cast(DType::i32, place - bin * bin_) : place));
        }
        size_t next = places.size();
        for (const Expr& value : {update_->value, update_->factor})
          if (value) stmts.push_back(store(records_[next++], {to}, value));
        b.append(refresh(substitute(with_needed(block(std::move(stmts))), known)));
      });
    });
  }

  // Where a run's records of each bin begin: the number of smaller keys, by binary search.
  Loop find_first(KernelBuilder& b, const Expr& run, const Buffer& own) const {
    const int bits = std::countr_zero(static_cast<uint64_t>(run_));
    return b.loop(named("_first"), 0, bins_ + 1, [&](Expr bin) {
      const Buffer smaller = b.alloc("smaller", DType::i64, {1}, {}, Space::registers);
      b.store(smaller, {0}, 0);
      b.loop("probe", 0, bits + 1, [&](Expr step) {
        const Expr more = b.let("more", load(smaller, {0}) + binary(BinaryOp::shl, 1, Expr(bits) - step));
        b.if_then(more <= run_,
                  [&] { b.if_then(i64(load(own, {more - 1})) < bin * run_, [&] { b.store(smaller, {0}, more); }); });
      });
      b.store(begin_, {bin, run}, cast(DType::i32, load(smaller, {0})));
    });
  }

  void sum(KernelBuilder& b, Schedule::SortedBins& handles) const {
    handles.bins = b.loop(named("_b"), 0, bins_, [&](Expr bin) {
      handles.segments = b.loop(named("_d"), 0, runs_, [&](Expr run) {
        const Expr from = b.let(named("_from"), run * run_ + i64(load(begin_, {bin, run}))),
                   to = b.let(named("_to"), run * run_ + i64(load(begin_, {bin + 1, run})));
        handles.records = b.loop(named("_g"), from, to - from, [&](Expr g) { b.append(add(bin, g)); });
      });
    });
  }

  Stmt add(const Expr& bin, const Expr& place) const {
    const auto recorded = [&](size_t i) { return load(records_[i], {place}); };
    std::vector<Expr> index = update_->index;
    size_t next = 0;
    for (; next < places_.size(); ++next)
      index[scatter_.destination[next].dim] =
          next == 0 ? index_add(index_mul(bin, bin_), i64(recorded(next))) : recorded(next);
    const Expr value = recorded(next++), factor = update_->factor ? recorded(next) : Expr();
    // Dims that are the same in all iterations may be lets of the head.
    return refresh(with_needed(accumulate(update_->buffer, std::move(index), update_->op, value, factor, {},
                                          update_->atomic, update_->ordered)));
  }

  const int64_t bin_, run_;
  int64_t runs_ = 1, bins_ = 1;
  const Accumulate* update_ = nullptr;
  Buffer begin_;                 // [bin, run]: the place of the bin's first record in the run
  std::vector<Buffer> records_;  // run after run: of the destination, by dims; of the value and the factor
  std::vector<Buffer> places_;   // of one run, by dims: destinations before they are sorted
};

}  // namespace

Schedule::SortedBins Schedule::bin_sorted(Loop id, const Buffer& buffer, int64_t size, int64_t run) {
  const Site site = find_loop(kernel_, id);
  const std::string& name = site.loop->var.name;
  constexpr int64_t most = int64_t{1} << 30;
  if (size < 1 || size > most)
    wrong_argument("bin_sorted", name, "a bin is 1 to " + std::to_string(most) + " long, got " + std::to_string(size));
  require_run("bin_sorted", *site.loop, run);
  const std::string line = "bin_sorted " + handle_name(kernel_, id) + " " + handle_name(kernel_, buffer) + " " +
                           std::to_string(size) + " " + std::to_string(run);
  SortedBins handles;
  put("bin_sorted", site, SortedBin(site, buffer, size, run).nest(handles), line);
  return handles;
}

}  // namespace gradloom::ir
