#include "ir/schedule/named_sums.h"

#include <algorithm>
#include <unordered_set>

#include "ir/analysis/races.h"
#include "ir/redirect.h"
#include "ir/rewrite.h"
#include "ir/schedule/unchanging.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

// What is computed where the buffer holds one value everywhere.
class Holding : public Rewriter {
 public:
  Holding(const Buffer& buffer, Expr value) : buffer_(buffer), value_(std::move(value)) {}
  using Rewriter::operator();

 private:
  using Rewriter::rewrite;
  Expr rewrite(const Load& n, const Expr& self) override {
    return n.buffer.same_as(buffer_) && !n.guard ? value_ : Rewriter::rewrite(n, self);
  }
  const Buffer buffer_;
  const Expr value_;
};

}  // namespace

NamedSums::NamedSums(const std::string& step, const Kernel& kernel, const Site& site, const Buffer& sums,
                     const std::vector<Scatter::Dim>& destination)
    : step_(step), site_(site), sums_(sums), destination_(destination) {
  const auto declares = [&](const Stmt& s) { return s.as<Alloc>() && s.as<Alloc>()->buffer.same_as(sums); };
  declared_ = static_cast<size_t>(std::find_if(site.path.begin(), site.path.end(), declares) - site.path.begin());
  const Block* body = declared_ + 3 == site.path.size() ? site.path[declared_ + 1].as<Block>() : nullptr;
  if (!body || body->stmts.size() != 3 || !body->stmts[1].same_as(site.stmt()))
    fail("it does not stand alone between a loop that fills buffer " + sums->name + " and one that stores it");
  take_fill(body->stmts[0]);
  take_store(kernel, body->stmts[2]);
}

NamedSums::Nest NamedSums::nest_of(Stmt s) {
  Nest nest;
  for (; s.as<For>(); s = Stmt(s.as<For>()->body)) nest.loops.push_back(s.as<For>());
  nest.inner = s;
  return nest;
}

std::vector<const For*> NamedSums::over_destinations(const Nest& nest, const std::vector<Expr>& index) const {
  std::vector<const For*> result;
  for (const Scatter::Dim& d : destination_)
    for (const For* f : nest.loops)
      if (const Var* v = index[d.dim].as<Var>(); v && v->id == f->var.id && as_int(f->begin) == 0) result.push_back(f);
  return result.size() == destination_.size() ? result : std::vector<const For*>();
}

Stmt NamedSums::without(const std::vector<const For*>& left_out, const Nest& nest) const {
  Stmt s = nest.inner;
  for (size_t i = nest.loops.size(); i-- > 0;) {
    const For& f = *nest.loops[i];
    if (std::find(left_out.begin(), left_out.end(), &f) == left_out.end())
      s = for_loop(f.var, f.begin, f.extent, f.kind, s);
  }
  return s;
}

void NamedSums::take_fill(const Stmt& s) {
  fill_ = nest_of(s);
  const Store* st = fill_.inner.as<Store>();
  const std::vector<Expr> origin(sums_->dims.size(), Expr(0));
  if (!st || st->guard || !st->buffer.same_as(sums_) || !st->value.as<Const>() ||
      !covers_region(fill_.loops, st->index, origin, sums_->dims))
    fail("buffer " + sums_->name + " is not filled with a constant before it");
  constant_ = st->value;
  filled_ = over_destinations(fill_, st->index);
  if (filled_.empty()) fail("buffer " + sums_->name + " is not filled with a constant before it");
}

void NamedSums::take_store(const Kernel& kernel, const Stmt& s) {
  store_ = nest_of(s);
  const std::string name = store_.loops.empty() ? "" : store_.loops[0]->var.name;
  const std::vector<BufferAccess> reads = accesses(s, sums_);
  const auto same = [&](const BufferAccess& a) {
    return !a.writes && std::equal(a.index.begin(), a.index.end(), reads[0].index.begin(),
                                   [](const Expr& x, const Expr& y) { return equal(x, y); });
  };
  const std::vector<Expr> origin(sums_->dims.size(), Expr(0));
  if (!reads.empty() && std::all_of(reads.begin(), reads.end(), same) &&
      covers_region(store_.loops, reads[0].index, origin, sums_->dims))
    written_ = over_destinations(store_, reads[0].index);
  if (written_.empty()) fail("no loop follows it that reads each element of buffer " + sums_->name + " once");
  for (const For* f : written_)
    if (const std::string why = loop_carried_conflict(*f, find_loop(kernel, f->var.id).scope); !why.empty()) fail(why);

  std::unordered_set<int64_t> own;
  walk(s, [&](const Stmt& x) {
    if (const Alloc* n = x.as<Alloc>()) own.insert(n->buffer->id);
  });
  const auto written = [&](const Buffer& b) {
    if (!own.contains(b->id) && !accesses(site_.stmt(), b).empty())
      fail("buffer " + b->name + ", which it uses, is written by loop " + name);
  };
  walk(s, [&](const Stmt& x) {
    if (const Store* n = x.as<Store>()) {
      written(n->buffer);
      if (n->buffer->role == Role::inout && !stored_) stored_ = n;
    }
    if (const Accumulate* n = x.as<Accumulate>()) written(n->buffer);
    if (const Reduce* n = x.as<Reduce>()) written(n->buffer);
  });
  if (const std::string why = why_it_changes(Holding(sums_, constant_)(store_.inner), 0); !why.empty())
    fail("where nothing is added to buffer " + sums_->name + " loop " + name + " may change memory: " + why);
}

Site NamedSums::around() const {
  Site site = site_;
  site.path.resize(declared_ + 1);
  return site;
}

std::vector<Var> NamedSums::stored_at() const {
  std::vector<Var> result;
  for (const For* f : written_) result.push_back(f->var);
  return result;
}

Stmt NamedSums::of(const std::vector<Expr>& destination, const Stmt& update) const {
  Substitution at;
  for (size_t d = 0; d < written_.size(); ++d)
    at[written_[d]->var.id] = destination[d], at[filled_[d]->var.id] = destination[d];
  BufferNode node = *sums_;
  node.id = 0;
  for (const Scatter::Dim& d : destination_) node.dims[d.dim] = 1;
  node.facts.nondecreasing = node.facts.injective = false;
  const Buffer one = make_buffer(std::move(node));
  const auto place = [this](std::vector<Expr> index) {
    for (const Scatter::Dim& d : destination_) index[d.dim] = 0;
    return index;
  };
  const Stmt all = block({substitute(without(filled_, fill_), at), update, substitute(without(written_, store_), at)});
  return alloc(one, redirect(all, sums_, {one, place}));
}

}  // namespace gradloom::ir
