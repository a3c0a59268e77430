// The step group_sorted: a scatter's iterations sorted by destination with packed keys, by the threads of a GPU's
// blocks and by merging; then each destination's in order.
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

// A key is (destination << 32) + number of the iteration: keys are unique, and their order is that of destinations,
// then of iterations. Padding keys, also of iterations that have no destination, are the largest.
constexpr int64_t number_bits = 32, none = std::numeric_limits<int64_t>::max();

Expr shl(Expr a, Expr count) { return binary(BinaryOp::shl, std::move(a), std::move(count)); }
Expr shr(Expr a, Expr count) { return binary(BinaryOp::shr, std::move(a), std::move(count)); }

// The tables are `exclusive`, which this sort ensures: a pair's two elements are its own; sorting and merging permute
// keys; a destination's keys are neighbours, so that it has one first and one last.
class SortedGroup : public Grouping {
 public:
  SortedGroup(const Site& site, const Buffer& buffer, int64_t run) : Grouping("group_sorted", site, buffer), run_(run) {
    const std::optional<int64_t> n = as_int(folded(bounds_.extent)), rows = as_int(rows_);
    if (!n || !rows) refuse(step_, loop_.var.name, "the numbers of its iterations and destinations are not constants");
    n_ = std::max<int64_t>(*n, 1);
    const int64_t most = std::numeric_limits<int32_t>::max();
    if (n_ > most / 2 || *rows > most)
      refuse(step_, loop_.var.name, "a key cannot hold its iteration and its destination in 32 bits each");
    padded_ = run * static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>((n_ + run - 1) / run)));
    const __int128 bytes = __int128{2} * padded_ * size_of(DType::i64) + __int128{2} * *rows * size_of(DType::i32);
    if (bytes > Schedule::max_table_bytes)
      refuse(step_, loop_.var.name,
             "its tables of the destinations in " + buffer->name + " would take " +
                 std::to_string(static_cast<int64_t>(bytes / 1'000'000'000)) + " GB");
    const auto table = [&](const std::string& what, DType dtype, std::vector<Expr> dims, Expr largest) {
      return make_buffer({.name = buffer->name + what,
                          .dtype = dtype,
                          .dims = std::move(dims),
                          .role = Role::temp,
                          .alignment = 64,
                          .facts = {.min = 0, .max = std::move(largest), .exclusive = true}});
    };
    keys_ = table("_keys", DType::i64, {2, padded_}, {});
    first_ = table("_first", DType::i32, {rows_}, padded_);
    last_ = table("_last", DType::i32, {rows_}, padded_);
  }

  const Buffer& first() const { return first_; }
  const Buffer& last() const { return last_; }
  int64_t count() const { return n_; }

  Stmt rows(Schedule::SortedGroups& handles) const {
    const Nest nest = over_destinations(
        [&](const Expr& key) {
          return Segment{i64(load(first_, {key})), i64(load(last_, {key}))};
        },
        [&](const Expr& place) {
          return load(keys_, {sorted_side(), place}) & Expr((int64_t{1} << number_bits) - 1);
        });
    handles.rows = nest.rows, handles.group = nest.group;
    return nest.stmt;
  }

  Stmt sorted_around(const Stmt& use, Schedule::SortedGroups& handles) const {
    KernelBuilder b("sort");
    sort_runs(b, handles);
    int from = 0;
    for (int64_t length = run_; length < padded_; length *= 2, from = 1 - from)
      handles.merges.push_back(merge(b, length, from));
    mark(b, handles);
    b.append(use);
    return bounds_.wrap(alloc(keys_, alloc(first_, alloc(last_, b.build().body))));
  }

 private:
  std::string named(const char* what) const { return loop_.var.name + what; }
  int sorted_side() const { return std::countr_zero(static_cast<uint64_t>(padded_ / run_)) % 2; }

  void sort_runs(KernelBuilder& b, Schedule::SortedGroups& handles) const {
    handles.runs = b.loop(named("_run"), 0, padded_ / run_, [&](Expr run) {
      const Buffer own = b.alloc("own", DType::i64, {run_}, {.min = 0, .exclusive = true});
      handles.run.push_back(b.loop(named("_fill"), 0, run_, [&](Expr i) {
        const Expr number = b.let("number", run * run_ + i);
        b.store(own, {i}, none);
        b.if_then(number < bounds_.extent, [&] {
          b.append(substitute(scatter_.around([&](const std::vector<Expr>& at) {
            return store(own, {i}, shl(key(at), Expr(number_bits)) + number);
          }),
                              {{loop_.var.id, index_add(bounds_.begin, number)}}));
        });
      }));
      handles.run.push_back(author_block_sort(b, own, run_));
      handles.run.push_back(b.loop(named("_keep"), 0, run_, [&](Expr i) {
        b.store(keys_, {0, run * run_ + i}, load(own, {i}));
      }));
    });
  }

  // Merges pairs of runs of `length`: a key's place is its index in its own run plus the number of smaller keys in the
  // other run, found by binary search. Of padding keys, which are equal, those of the first run come first.
  Loop merge(KernelBuilder& b, int64_t length, int from) const {
    const int bits = std::countr_zero(static_cast<uint64_t>(length));
    return b.loop(named("_merge"), 0, padded_, [&](Expr i) {
      const Expr base = b.let("base", floor_div(i, Expr(2 * length)) * (2 * length));
      const Expr second = b.let("second", i - base >= length);
      const Expr other = b.let("other", select(second, base, base + length));
      const Expr key = b.let("key", load(keys_, {from, i}));
      const Buffer smaller = b.alloc("smaller", DType::i64, {1}, {}, Space::registers);
      b.store(smaller, {0}, 0);
      b.loop("probe", 0, bits + 1, [&](Expr step) {
        const Expr more = b.let("more", load(smaller, {0}) + shl(1, Expr(bits) - step));
        b.if_then(more <= length, [&] {
          const Expr probed = b.let("probed", load(keys_, {from, other + more - 1}));
          b.if_then((probed < key) | (second & (probed == key)), [&] { b.store(smaller, {0}, more); });
        });
      });
      b.store(keys_, {1 - from, select(second, i - length, i) + load(smaller, {0})}, key);
    });
  }

  // Destination r's keys are first[r] ... last[r] - 1.
  void mark(KernelBuilder& b, Schedule::SortedGroups& handles) const {
    const Expr from = sorted_side();
    const auto number = [](const Expr& e) { return cast(DType::i32, e); };
    const auto destination = [](const Expr& key) { return shr(key, Expr(number_bits)); };
    handles.clear = b.loop(named("_clear"), 0, rows_, [&](Expr r) {
      b.store(first_, {r}, constant_int(DType::i32, 0));
      b.store(last_, {r}, constant_int(DType::i32, 0));
    });
    handles.mark = b.loop(named("_mark"), 0, n_, [&](Expr i) {
      const Expr key = b.let("key", load(keys_, {from, i}));
      const Expr before = b.let("before", load(keys_, {from, i - 1}, i > 0, none)),
                 after = b.let("after", load(keys_, {from, i + 1}, i < n_ - 1, none));
      const Expr row = b.let("row", destination(key));
      b.if_then(key != none, [&] {
        b.if_then(destination(before) != row, [&] { b.store(first_, {row}, number(i)); });
        b.if_then(destination(after) != row, [&] { b.store(last_, {row}, number(i + 1)); });
      });
    });
  }

  const int64_t run_;
  int64_t n_ = 0, padded_ = 0;
  Buffer keys_;          // [side, i]: each merge reads one side and writes the other
  Buffer first_, last_;  // by destination
};

}  // namespace

Schedule::SortedGroups Schedule::group_sorted(Loop id, const Buffer& buffer, int64_t run) {
  const Site site = find_loop(kernel_, id);
  require_run("group_sorted", *site.loop, run);
  const std::string line =
      "group_sorted " + handle_name(kernel_, id) + " " + handle_name(kernel_, buffer) + " " + std::to_string(run);
  const SortedGroup group(site, buffer, run);
  SortedGroups handles;
  const Stmt rows = group.rows(handles);
  Grouped sorted =
      grouped(kernel_, site, group, rows, [&](const Stmt& use) { return group.sorted_around(use, handles); });
  if (!part_of_step_) require_proved("group_sorted", sorted.around, kernel_, sorted.kernel, sorted.to);
  kernel_ = std::move(sorted.kernel);
  trace_.push_back(line);
  sorted_.push_back({group.first(), group.last(), group.count()});
  return handles;
}

}  // namespace gradloom::ir
