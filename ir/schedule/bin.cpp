// The step bin: a stable sort of what a scatter adds, by ranges of destinations, a chunk of iterations at a time.
#include <algorithm>

#include "gradloom/schedule.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/scatter.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

// So that the records of one bin in different chunks do not share the sets of a cache.
constexpr int64_t padding = 80;

class Bin {
 public:
  Bin(const Site& site, const Buffer& buffer, int64_t bin, int64_t chunk)
      : loop_(*site.loop),
        name_(loop_.var.name),
        scatter_(scatter_of("bin", site, buffer)),
        bounds_(read_once(loop_, site.scope)),
        bin_(bin),
        chunk_(chunk),
        bins_(ceil_div(scatter_.destination[0].extent, bin, site.scope)),
        chunks_(ceil_div(bounds_.extent, chunk, site.scope)) {
    update_ = scatter_.tail.as<Accumulate>();
    if (!update_) refuse("bin", name_, "an iteration adds more than one value: it holds a loop or a condition");
    begin_ = table(buffer->name + "_begin", DType::i32, {chunks_, index_add(bins_, 1)}, chunk);
    const auto record = [&](const std::string& what, DType dtype, const Expr& most) {
      records_.push_back(table(buffer->name + what, dtype, {chunks_, Expr(chunk + padding)}, most));
    };
    for (size_t d = 0; d < scatter_.destination.size(); ++d)
      record("_at", d == 0 ? DType::i32 : DType::i64,
             d == 0 ? Expr(bin - 1) : index_sub(scatter_.destination[d].extent, 1));
    for (const Expr& value : {update_->value, update_->factor})
      if (value && varies(value)) record(value.same_as(update_->value) ? "_value" : "_factor", value.dtype(), {});
  }

  Stmt nest(Schedule::Bins& handles) const {
    const Stmt sorted = sort(handles);
    Stmt all = block({sorted, sum(handles)});
    for (size_t i = records_.size(); i-- > 0;) all = alloc(records_[i], all);
    return bounds_.wrap(alloc(begin_, all));
  }

 private:
  static Expr i64(const Expr& e) { return cast(DType::i64, e); }
  static Expr number(int64_t value) { return constant_int(DType::i32, value); }
  static Buffer table(const std::string& name, DType dtype, std::vector<Expr> dims, const Expr& most) {
    Facts facts;
    if (most) facts = {.min = 0, .max = most};
    return make_buffer(
        {.name = name, .dtype = dtype, .dims = std::move(dims), .role = Role::temp, .alignment = 64, .facts = facts});
  }

  // What is recorded of an iteration, in the order of the records' buffers.
  std::vector<Expr> record_of(const std::vector<Expr>& at) const {
    std::vector<Expr> record{cast(DType::i32, index_mod(at[0], bin_))};
    record.insert(record.end(), at.begin() + 1, at.end());
    for (const Expr& value : {update_->value, update_->factor})
      if (value && varies(value)) record.push_back(value);
    return record;
  }
  // Whether a value differs from iteration to iteration, so that it is recorded.
  bool varies(const Expr& value) const {
    return has_load(value) || mentions(value, loop_.var.id) ||
           std::any_of(scatter_.head.begin(), scatter_.head.end(),
                       [&](const Stmt& s) { return s.as<Let>() && mentions(value, s.as<Let>()->var.id); });
  }

  Stmt sort(Schedule::Bins& handles) const {
    const Var c = make_var(name_ + "_c"), z = make_var(name_ + "_z"), n = make_var(name_ + "_n"),
              s = make_var(name_ + "_s"), p = make_var(name_ + "_p"), length = make_var(name_ + "_l");
    handles.chunks = c.id, handles.clear = z.id, handles.count = n.id, handles.starts = s.id, handles.place = p.id;
    const Buffer cursor =
        make_buffer({.name = name_ + "_cursor", .dtype = DType::i32, .dims = {bins_}, .role = Role::temp});
    const Expr first = index_mul(var(c), chunk_);
    const auto each = [&](const Var& v, const std::function<Stmt(const std::vector<Expr>&)>& body) {
      const Expr k = index_add(bounds_.begin, index_add(first, var(v)));
      return for_loop(v, 0, var(length), ForKind::serial, substitute(scatter_.around(body), {{loop_.var.id, k}}));
    };
    const Stmt clear = for_loop(z, 0, bins_, ForKind::serial, store(cursor, {var(z)}, number(0)));
    const Stmt count = each(n, [&](const std::vector<Expr>& at) {
      return accumulate(cursor, {index_div(at[0], bin_)}, AccumulateOp::add, number(1));
    });
    const Stmt place = each(p, [&](const std::vector<Expr>& at) {
      const Var slot = make_var(name_ + "_slot", {DType::i32, 1}), bin = make_var(name_ + "_bin");
      std::vector<Stmt> stmts{store(cursor, {var(bin)}, var(slot) + number(1))};
      const std::vector<Expr> record = record_of(at);
      for (size_t i = 0; i < record.size(); ++i)
        stmts.push_back(store(records_[i], {var(c), i64(var(slot))}, record[i]));
      return let(bin, index_div(at[0], bin_), let(slot, load(cursor, {var(bin)}), block(std::move(stmts))));
    });
    const Stmt chunk = block({clear, count, starts(cursor, c, s), place});
    const Expr most = index_min(Expr(chunk_), index_sub(bounds_.extent, first));
    return for_loop(c, 0, chunks_, ForKind::serial, let(length, most, alloc(cursor, chunk)));
  }

  // Where each bin's records begin in the chunk.
  Stmt starts(const Buffer& cursor, const Var& c, const Var& s) const {
    const Buffer running = make_buffer(
        {.name = name_ + "_sum", .dtype = DType::i32, .dims = {1}, .role = Role::temp, .space = Space::registers});
    const Var start = make_var(name_ + "_start", {DType::i32, 1}), count = make_var(name_ + "_count", {DType::i32, 1});
    const Stmt next = block({store(begin_, {var(c), var(s)}, var(start)), store(cursor, {var(s)}, var(start)),
                             store(running, {0}, var(start) + var(count))});
    const Stmt one = let(start, load(running, {0}), let(count, load(cursor, {var(s)}), next));
    return alloc(running, block({store(running, {0}, number(0)), for_loop(s, 0, bins_, ForKind::serial, one),
                                 store(begin_, {var(c), bins_}, load(running, {0}))}));
  }

  Stmt sum(Schedule::Bins& handles) const {
    const Var b = make_var(name_ + "_b"), d = make_var(name_ + "_d"), g = make_var(name_ + "_g"),
              from = make_var(name_ + "_from"), to = make_var(name_ + "_to");
    handles.bins = b.id, handles.runs = d.id, handles.records = g.id;
    const auto recorded = [&](size_t i) { return load(records_[i], {var(d), var(g)}); };
    std::vector<Expr> index = update_->index;
    for (size_t i = 0; i < scatter_.destination.size(); ++i) {
      const Expr at = recorded(i);
      index[scatter_.destination[i].dim] = i == 0 ? index_add(index_mul(var(b), bin_), i64(at)) : at;
    }
    size_t next = scatter_.destination.size();
    const auto again = [&](const Expr& value) { return value && varies(value) ? recorded(next++) : value; };
    const Expr value = again(update_->value), factor = again(update_->factor);
    Stmt add = accumulate(update_->buffer, std::move(index), update_->op, value, factor, {}, update_->atomic,
                          update_->ordered);
    // Dims that are the same in all iterations may be lets of the head.
    for (size_t i = scatter_.head.size(); i-- > 0;)
      if (const Let* l = scatter_.head[i].as<Let>(); l && mentions(add, l->var.id)) add = let(l->var, l->value, add);
    add = refresh(add);
    const Stmt run = for_loop(g, var(from), index_sub(var(to), var(from)), ForKind::serial, add);
    const auto bound = [&](const Expr& bin) { return i64(load(begin_, {var(d), bin})); };
    const Stmt runs = let(from, bound(var(b)), let(to, bound(index_add(var(b), 1)), run));
    return for_loop(b, 0, bins_, ForKind::serial, for_loop(d, 0, chunks_, ForKind::serial, runs));
  }

  const For& loop_;
  const std::string name_;
  const Scatter scatter_;
  const Bounds bounds_;
  const int64_t bin_, chunk_;
  const Expr bins_, chunks_;
  const Accumulate* update_ = nullptr;
  Buffer begin_;
  std::vector<Buffer> records_;  // of the destination, by dims; of the value and the factor, where they vary
};

}  // namespace

Schedule::Bins Schedule::bin(Loop id, const Buffer& buffer, int64_t size, int64_t chunk) {
  const Site site = find_loop(kernel_, id);
  constexpr int64_t most = int64_t{1} << 30;
  if (size < 1 || size > most || chunk < 1 || chunk > most)
    wrong_argument("bin", site.loop->var.name,
                   "a bin and a chunk are 1 to " + std::to_string(most) + " long, got " + std::to_string(size) +
                       " and " + std::to_string(chunk));
  const std::string line = "bin " + handle_name(kernel_, id) + " " + handle_name(kernel_, buffer) + " " +
                           std::to_string(size) + " " + std::to_string(chunk);
  Bins handles;
  put("bin", site, Bin(site, buffer, size, chunk).nest(handles), line);
  return handles;
}

}  // namespace gradloom::ir
