// The step record: what a loop's iterations accumulate is first recorded, by a copy of the loop whose iterations are
// independent, and then accumulated, in order.
#include <limits>
#include <unordered_set>

#include "gradloom/schedule.h"
#include "ir/analysis/loop_bounds.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

class RecordNest {
 public:
  RecordNest(const Site& site, const Buffer& buffer) : loop_(*site.loop), known_(site.scope) {
    require_serial(step, loop_);
    require_outside(step, loop_, buffer);
    collect(site.stmt());
    if (!update_ || !update_->buffer.same_as(buffer)) fail("it does more than accumulate into " + buffer->name);
    if (any_of(loop_.body, [&](const Expr& e) { return e.as<Load>() && e.as<Load>()->buffer.same_as(buffer); }))
      fail("it reads buffer " + buffer->name);
    const auto scalar = [&](const Expr& e) {
      if (e && e.lanes() > 1) fail("buffer " + buffer->name + " is accessed by vectors");
    };
    scalar(update_->value), scalar(update_->factor), scalar(update_->guard);
    for (const Expr& i : update_->index) scalar(i);
    plan();
  }

  Stmt nest(Schedule::Recorded& handles) const {
    const std::vector<Expr> here = places();
    std::vector<Stmt> found;
    for (const Record& r : records_)
      found.push_back(store(r.table, here, r.destination ? cast(r.table->dtype, r.value) : r.value));
    Stmt one = block(std::move(found));
    if (update_->guard) one = if_then(update_->guard, one);
    one = block({store(records_[0].table, here, constant_int(records_[0].table->dtype, -1)), wrapped(between_, one)});
    Stmt fetch = one;
    for (size_t l = loops_.size(); l-- > 0;)
      fetch = for_loop(loops_[l].var, loops_[l].begin, loops_[l].extent, ForKind::serial, fetch);

    std::vector<Var> again;
    Substitution fresh;
    for (const Bound& f : loops_) {
      again.push_back(make_var(f.var.name + "_a"));
      fresh[f.var.id] = var(again.back());
      handles.fetch.push_back(f.var.id), handles.add.push_back(again.back().id);
    }
    const Var place = make_var(loop_.var.name + "_place");
    std::vector<Expr> there;
    for (const Expr& i : here) there.push_back(substitute(i, fresh));
    size_t next = 0;
    const auto recorded = [&](const Expr& e, bool destination) -> Expr {
      if (!e) return e;
      if (next >= records_.size() || !records_[next].of.same_as(e)) return substitute(inlined(e), fresh);
      const Record& r = records_[next];
      const Expr value = next++ == 0 ? var(place) : load(r.table, there);
      return destination && value.dtype() != DType::i64 ? cast(DType::i64, value) : value;
    };
    std::vector<Expr> index;
    for (const Expr& i : update_->index) index.push_back(recorded(i, true));
    const Expr value = recorded(update_->value, false), factor = recorded(update_->factor, false);
    Stmt add = accumulate(update_->buffer, std::move(index), update_->op, value, factor, {}, update_->atomic,
                          update_->ordered);
    add = let(place, cast(DType::i64, load(records_[0].table, there)), if_then(var(place) >= 0, add));
    for (size_t l = loops_.size(); l-- > 0;)
      add = for_loop(again[l], loops_[l].begin, loops_[l].extent, ForKind::serial, add);
    Stmt all = block({fetch, add});
    for (const Record& r : records_) handles.tables.push_back(r.table);
    for (size_t i = records_.size(); i-- > 0;) all = alloc(records_[i].table, all);
    return all;
  }

 private:
  static constexpr const char* step = "record";
  struct Record {
    Expr of;     // of the accumulate
    Expr value;  // the same
    bool destination;
    Buffer table;
  };
  [[noreturn]] void fail(const std::string& why) const { refuse(step, loop_.var.name, why); }

  // Loops, and what stands between them, which moves into the innermost.
  void collect(Stmt s) {
    for (; is_wrapper(s) && !s.as<Alloc>(); s = body_of(s)) {
      if (const For* f = s.as<For>()) {
        require_serial(step, *f);
        const std::optional<int64_t> begin = constant(f->begin), extent = constant(f->extent);
        if (!begin || !extent) fail("the bounds of loop " + f->var.name + " are not constants");
        if (*extent < 1) fail("loop " + f->var.name + " has no iteration");
        loops_.push_back({f->var, *begin, *extent});
        known_.enter(*f);
        continue;
      }
      put_between(s);
      if (const Let* l = s.as<Let>()) {
        lets_[l->var.id] = inlined(l->value);
        known_.enter(*l);
      }
      if (const Check* c = s.as<Check>()) known_.assume(c->condition);
      if (const If* i = s.as<If>()) known_.assume(i->condition);
    }
    update_ = s.as<Accumulate>();
    if (update_ && update_->guard) known_.assume(update_->guard);
  }
  static std::optional<int64_t> constant(const Expr& e) {
    const Linear l = linear(e);
    return l.exact && l.terms.empty() ? std::optional(l.constant) : std::nullopt;
  }
  // Conditions one in another are one, where the inner may be tested whatever the outer one says.
  void put_between(const Stmt& s) {
    const If* inner = s.as<If>();
    const If* outer = between_.empty() ? nullptr : between_.back().as<If>();
    if (inner && outer && !has_load(inner->condition) && !has_variable_divisor(inner->condition))
      between_.back() = if_then(outer->condition & inner->condition, block({}));
    else
      between_.push_back(s);
  }
  Expr inlined(const Expr& e) const { return substitute(e, lets_); }

  void plan() {
    int64_t all = 1;
    std::vector<Expr> dims;
    for (const Bound& f : loops_) {
      if (__builtin_mul_overflow(all, f.extent, &all) || all > Schedule::max_table_bytes / 16)
        fail("its records would take more than " + std::to_string(Schedule::max_table_bytes / 1'000'000'000) + " GB");
      dims.push_back(f.extent);
    }
    const auto record = [&](const Expr& e, bool destination, const std::string& what, DType dtype, Facts facts) {
      records_.push_back({e, e, destination,
                          make_buffer({.name = update_->buffer->name + what,
                                       .dtype = dtype,
                                       .dims = dims,
                                       .role = Role::temp,
                                       .alignment = 64,
                                       .facts = std::move(facts)})});
    };
    for (size_t d = 0; d < update_->index.size(); ++d) {
      const Expr& at = update_->index[d];
      if (plain(at)) continue;
      const Expr& dim = update_->buffer->dims[d];
      const std::optional<int64_t> extent = as_int(dim);
      if (known_.proves(0 <= at) != true || known_.proves(at < dim) != true)
        fail("its destination in buffer " + update_->buffer->name + " is not proved to be in it");
      record(at, true, "_to", extent && *extent <= std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64,
             {.min = -1, .max = index_sub(dim, 1)});
    }
    if (records_.empty()) fail("its destination does not depend on what it reads");
    if (!plain(update_->value)) record(update_->value, false, "_of", update_->value.dtype(), {});
    if (update_->factor && !plain(update_->factor))
      record(update_->factor, false, "_times", update_->factor.dtype(), {});
  }
  // Whether it may as well be computed where it is accumulated.
  bool plain(const Expr& e) const {
    const Expr all = inlined(e);
    return !has_load(all) && !has_variable_divisor(all);
  }
  std::vector<Expr> places() const {
    std::vector<Expr> at;
    for (const Bound& f : loops_) at.push_back(index_sub(var(f.var), f.begin));
    return at;
  }

  const For& loop_;
  Ranges known_;
  struct Bound {
    Var var;
    int64_t begin, extent;
  };
  std::vector<Bound> loops_;  // outermost first
  std::vector<Stmt> between_;
  Substitution lets_;
  const Accumulate* update_ = nullptr;
  std::vector<Record> records_;  // the first: of a destination, -1 where there is none
};

}  // namespace

// Legal because what is recorded is not written by the accumulates, whose order stays.
Schedule::Recorded Schedule::record(Loop id, const Buffer& buffer) {
  const Site site = find_loop(kernel_, id);
  const std::string line = "record " + handle_name(kernel_, id) + " " + handle_name(kernel_, buffer);
  Recorded handles;
  put("record", site, RecordNest(site, buffer).nest(handles), line);
  return handles;
}

}  // namespace gradloom::ir
