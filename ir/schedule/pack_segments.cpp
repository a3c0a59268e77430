// The step pack_segments: iterations of short segments, packed: a tile of them is fetched at a time, whatever segments
// they are of, then accumulated in order.
#include <unordered_set>

#include "gradloom/builder.h"
#include "gradloom/schedule.h"
#include "ir/analysis/loop_bounds.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {
namespace {

constexpr int64_t counted = 32;  // segments whose lengths are added up one by one, so that threads share the rest

// for d { lets; for g { lets; accumulate } }
class Segments {
 public:
  Segments(const Site& site, const std::string& step) : loop_(*site.loop), known_(site.inside()) {
    Stmt s = loop_.body;
    std::unordered_set<int64_t> bound{loop_.var.id};
    for (; s.as<Let>(); s = s.as<Let>()->body) {
      lets_.push_back(s.as<Let>());
      bound.insert(lets_.back()->var.id);
      known_.enter(*lets_.back());
    }
    records_ = s.as<For>();
    const std::string& name = loop_.var.name;
    if (!records_) refuse(step, name, "its body is not lets around one loop");
    require_serial(step, *records_);
    varying_ = bound;
    varying_.insert(records_->var.id);
    Substitution inlined;
    for (s = records_->body; s.as<Let>(); s = s.as<Let>()->body)
      inlined[s.as<Let>()->var.id] = substitute(s.as<Let>()->value, inlined);
    const Accumulate* update = s.as<Accumulate>();
    if (!update || update->guard)
      refuse(step, name,
             "the body of loop " + records_->var.name + " is not lets around one accumulate without a guard");
    if (any_of(loop_.body, [&](const Expr& e) { return e.as<Load>() && e.as<Load>()->buffer.same_as(update->buffer); }))
      refuse(step, name, "it reads buffer " + update->buffer->name);
    update_ = *update;
    const auto each = [&](const std::function<void(Expr&)>& change) {
      for (Expr& e : update_.index) change(e);
      change(update_.value);
      if (update_.factor) change(update_.factor);
    };
    each([&](Expr& e) {
      if (e.lanes() > 1) refuse(step, name, "buffer " + update->buffer->name + " is accessed by vectors");
      e = substitute(e, inlined);
    });
  }

  struct Segment {
    Expr begin, length;
    Substitution at;  // what stands for the loop's variables
  };
  // Reads the lets again, for segment d.
  Segment read(KernelBuilder& b, const Expr& d) const {
    Segment segment{.begin = {}, .length = {}, .at = {{loop_.var.id, d}}};
    for (const Let* l : lets_) segment.at[l->var.id] = b.let(l->var.name, substitute(l->value, segment.at));
    segment.begin = substitute(records_->begin, segment.at);
    segment.length = substitute(nonnegative(records_->extent, known_), segment.at);
    return segment;
  }

  // What differs among iterations of an expression: what is loaded, else variables.
  Expr fetched(const Expr& e, const std::function<Expr(const Expr& what)>& take) const {
    struct Take : Rewriter {
      using Rewriter::rewrite;
      Expr rewrite(const Load& n, const Expr& self) override {
        return varies(self) ? take(self) : Rewriter::rewrite(n, self);
      }
      Expr rewrite(const Var&, const Expr& self) override { return varies(self) ? take(self) : self; }
      std::function<bool(const Expr&)> varies;
      std::function<Expr(const Expr&)> take;
    } rewriter;
    rewriter.varies = [&](const Expr& x) {
      return any_of(x, [&](const Expr& v) { return v.as<Var>() && varying_.contains(v.as<Var>()->id); });
    };
    rewriter.take = take;
    return rewriter(e);
  }

  const For& loop_;
  Ranges known_;  // in the outer loop's body
  std::vector<const Let*> lets_;
  const For* records_ = nullptr;
  Accumulate update_;                    // with the inner lets' values in their places
  std::unordered_set<int64_t> varying_;  // the loops and the outer one's lets
};

// The declared bounds of what is loaded, where these are constants.
Facts constant_facts(const Expr& what) {
  const Load* l = what.as<Load>();
  if (!l || l->guard) return {};
  const Facts& from = l->buffer->facts;
  Facts facts;
  if (from.min && as_int(from.min)) facts.min = from.min;
  if (from.max && as_int(from.max)) facts.max = from.max;
  return facts;
}

}  // namespace

// Legal because what is fetched early is not written by the accumulates, whose order stays.
Schedule::PackedSegments Schedule::pack_segments(Loop id, int64_t tile) {
  const char* step = "pack_segments";
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  const std::string& name = loop.var.name;
  require_serial(step, loop);
  if (tile < 2 || tile > (1 << 20))
    wrong_argument(step, name, "a tile has 2 to 2^20 iterations, got " + std::to_string(tile));
  const std::string line = std::string(step) + " " + handle_name(kernel_, id) + " " + std::to_string(tile);
  const Segments segments(site, step);
  const Bounds bounds = read_once(loop, site.scope);
  const Expr groups = ceil_div(bounds.extent, counted, site.scope);

  std::vector<Buffer> tiles;
  std::vector<Expr> fetched;
  const Var place = make_var(segments.records_->var.name + "_a");
  const auto take = [&](const Expr& what) {
    for (size_t i = 0; i < fetched.size(); ++i)
      if (equal(fetched[i], what)) return load(tiles[i], {var(place)});
    if (what.lanes() > 1) refuse(step, name, "what it accumulates is loaded by vectors");
    const Load* l = what.as<Load>();
    Facts facts = constant_facts(what);
    facts.exclusive = true;  // a segment's places are its own: they follow those of the segments before it
    tiles.push_back(make_buffer({.name = (l ? l->buffer->name : what.as<Var>()->name) + "_tile",
                                 .dtype = what.dtype(),
                                 .dims = {tile},
                                 .role = Role::temp,
                                 .alignment = 64,
                                 .facts = facts}));
    fetched.push_back(what);
    return load(tiles.back(), {var(place)});
  };
  std::vector<Expr> index;
  for (const Expr& e : segments.update_.index) index.push_back(segments.fetched(e, take));
  const Expr value = segments.fetched(segments.update_.value, take),
             factor = segments.update_.factor ? segments.fetched(segments.update_.factor, take) : Expr();
  const Accumulate& update = segments.update_;
  const Stmt add = for_loop(
      place, 0, tile, ForKind::serial,
      accumulate(update.buffer, std::move(index), update.op, value, factor, {}, update.atomic, update.ordered));

  PackedSegments handles{.add = place.id};
  KernelBuilder b("pack");
  const Buffer before = b.alloc(name + "_before", DType::i64, {index_mul(groups, counted)}),
               in_groups = b.alloc(name + "_counts", DType::i64, {groups});
  // The exclusive sum of lengths: within each group of segments, then over the groups.
  handles.count = b.loop(name + "_n", 0, groups, [&](Expr g) {
    const Buffer running = b.alloc("running", DType::i64, {1}, {}, Space::registers);
    b.store(running, {0}, 0);
    b.loop("r", 0, counted, [&](Expr i) {
      const Expr r = b.let("r", g * counted + i);
      b.store(before, {r}, load(running, {0}));
      b.if_then(r < bounds.extent,
                [&] { b.accumulate(running, {0}, segments.read(b, index_add(bounds.begin, r)).length); });
    });
    b.store(in_groups, {g}, load(running, {0}));
  });
  const Buffer total = b.alloc("total", DType::i64, {1}, {}, Space::registers);
  b.store(total, {0}, 0);
  b.loop("g", 0, groups, [&](Expr g) {
    const Expr own = b.let("of_group", load(in_groups, {g}));
    b.store(in_groups, {g}, load(total, {0}));
    b.accumulate(total, {0}, own);
  });
  const Expr all = b.let(name + "_all", load(total, {0}));
  KernelBuilder packed("packed");
  handles.tiles = packed.loop(name + "_t", 0, floor_div(all + (tile - 1), Expr(tile)), [&](Expr t) {
    KernelBuilder one("tile");
    const Expr first = one.let("first", t * tile), left = one.let("left", max(min(all - first, Expr(tile)), 0));
    handles.fetch = one.loop(name + "_f", 0, bounds.extent, [&](Expr r) {
      const Expr at =
          one.let("at", load(before, {r}) + load(in_groups, {floor_div(r, Expr(counted))}) - first);  // in the tile
      const Segments::Segment s = segments.read(one, index_add(bounds.begin, r));
      const Expr from = one.let("from", max(at, 0)), to = one.let("to", min(at + s.length, left));
      const Expr source = one.let("source", index_sub(s.begin, at));
      one.loop(segments.records_->var.name + "_f", from, to - from, [&](Expr x) {
        Substitution known = s.at;
        known[segments.records_->var.id] = source + x;
        for (size_t i = 0; i < tiles.size(); ++i) one.store(tiles[i], {x}, substitute(fetched[i], known));
      });
    });
    one.append(for_loop(place, 0, left, ForKind::serial, add.as<For>()->body));
    Stmt body = one.build().body;
    for (size_t i = tiles.size(); i-- > 0;) body = alloc(tiles[i], body);  // exclusive: no other tile's
    packed.append(body);
  });
  b.append(packed.build().body);
  put(step, site, bounds.wrap(b.build().body), line);
  return handles;
}

}  // namespace gradloom::ir
