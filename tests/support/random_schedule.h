#pragma once
// Random schedules: steps of every kind, on random loops and buffers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gradloom/schedule.h"
#include "gradloom/target.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"
#include "ir/wrappers.h"
#include "tests/support/step_refusals.h"

namespace gradloom::ir::testing {

// What is accumulated into below the loop at an index that is no constant.
inline std::optional<Buffer> scattered(const For& loop) {
  std::optional<Buffer> found;
  walk(loop.body, [&](const Stmt& s) {
    const Accumulate* a = s.as<Accumulate>();
    if (a && std::any_of(a->index.begin(), a->index.end(), [](const Expr& i) { return !i.as<Const>(); }))
      found = a->buffer;
  });
  return found;
}

class RandomSchedule {
 public:
  // `seldom`: half of the steps are of the kinds that random nests seldom have a place for.
  RandomSchedule(const Kernel& kernel, uint64_t seed, bool seldom = false)
      : schedule(kernel), random_(seed), seldom_(seldom) {}

  // Whether a step was accepted.
  bool step() {
    const std::vector<Schedule::Loop> loops = schedule.loops();
    if (loops.empty()) return false;
    const Schedule::Loop loop = loops[pick(static_cast<int>(loops.size()))];
    const size_t before = schedule.trace().size();
    const Stmt body = schedule.kernel().body;
    refusal_.reset();
    try {
      apply(loop);
    } catch (const ScheduleRefusal& refusal) {
      note(refusal.what(), loop);
      ++reasons[last_reason_];
      EXPECT_EQ(schedule.trace().size(), before);
      EXPECT_TRUE(schedule.kernel().body.same_as(body));
      ++refused;
      return false;
    } catch (const Error& error) {
      if (std::string(error.what()).find("nodes, parts used twice counted twice") == std::string::npos) throw;
      EXPECT_TRUE(schedule.kernel().body.same_as(body));
      ++refused;
      return false;
    }
    ++accepted;
    const std::string line = schedule.trace().back();
    ++taken[line.substr(0, line.find(' '))];
    return true;
  }

  // Of the last step, if it was refused.
  std::optional<Refusal> take_refusal() { return std::move(refusal_); }
  const std::string& last_reason() const { return last_reason_; }

  Schedule schedule;
  int accepted = 0, refused = 0;
  std::map<std::string, int> taken, reasons;  // accepted steps by kind, refused ones by what was said

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  // The message without what fills its places: expressions, kinds of accesses and loops, the reason of another proof,
  // names. Names hold digits here, or follow what they name.
  static std::string reason_of(std::string message) {
    static const std::vector<std::pair<std::regex, const char*>> places{
        {std::regex("\\bdestination .+ is not proved in .+"), "destination _ is not proved in _"},
        {std::regex("\\bkernel .+ the (divisor|shift count) must be"), "the $1 must be"},
        {std::regex("\\bthe \\w+ loop \\S+ would not be proved any more: .*"), "it would lose another proof"},
        {std::regex("\\b(may) .+ (same element of)\\b"), "$1 touch the $2"},
        {std::regex("\\bit is an? \\w+ loop\\b"), "it is another kind of loop"},
        {std::regex("\\b(order in which|let) (sum|product)s\\b"), "$1 results"},
        {std::regex("\\b(loop|buffer|accumulate into|elements? of|iteration of|reduction over|the let|checks)"
                    "( buffer| loop)? [A-Za-z_0-9#]+"),
         "$1 _"},
    };
    for (const auto& [place, text] : places) message = std::regex_replace(message, place, text);
    std::istringstream words(message);
    std::string reason;
    for (std::string word; words >> word;) {
      const bool name = std::any_of(word.begin(), word.end(), isdigit);
      if (name && reason.ends_with(" _")) continue;  // of one expression
      reason += (reason.empty() ? "" : " ") + (name ? "_" : word);
    }
    return reason;
  }
  void note(const std::string& message, Schedule::Loop loop) {
    last_reason_ = reason_of(message);
    static const std::regex parts("(\\S+) of (?:loop|buffer) ([^\\s:]+):? (.*)");
    std::smatch m;
    if (!std::regex_match(message, m, parts)) return;
    // The step's own loop may be one that it made, of another name: the nearest with the name that is said.
    for (const For* f : loops_below(schedule.kernel().body))
      if (f->var.name == m[2] && schedule.get(loop).var.name != m[2]) {
        loop = f->var.id;
        break;
      }
    std::string why = m[3];
    if (why.starts_with(": ")) why = why.substr(2);
    refusal_ = Refusal{m[1], m[2], why, schedule.kernel(), loop, buffer_, begin_, extent_};
  }

  void apply(Schedule::Loop loop) {
    const For& site = schedule.get(loop);
    const For* inner = site.body.as<For>();
    const std::optional<int64_t> extent = as_int(site.extent);
    const std::optional<Buffer> sums = scattered(site);
    const std::vector<Buffer> buffers = buffers_of(schedule.kernel());
    const Buffer buffer = buffers[pick(static_cast<int>(buffers.size()))];
    buffer_ = buffer;
    const auto on = [&](const Buffer& b) { return buffer_ = b; };
    if (std::exchange(hoisted_, false) && pick(2)) return overlap(loop);
    const std::vector<Schedule::Loop> reductions = schedule.reductions();
    if (!reductions.empty() && pick(seldom_ ? 2 : 4) == 0)
      return expand(loop, reductions[static_cast<size_t>(pick(static_cast<int>(reductions.size())))]);
    static const std::vector<int> kinds{3, 6, 7, 7, 15, 16, 23, 24, 27, 27};
    switch (seldom_ && pick(2) ? kinds[static_cast<size_t>(pick(static_cast<int>(kinds.size())))] : pick(28)) {
      case 0:
      case 1:
        return void(schedule.split(loop, 2 + pick(6)));
      case 2:
        if (pick(3) == 0) return void(schedule.split_parts(loop, 2 + pick(6)));
        return void(schedule.split_guarded(loop, 2 + pick(6)));
      case 3:
        if (inner) return void(schedule.fuse(loop, inner->var.id));
        return void(schedule.split(loop, 4));
      case 4:
      case 5:
        if (const For* nested = nested_in(site)) return schedule.reorder(loop, nested->var.id);
        return void(schedule.split_guarded(loop, 4));
      case 6:
        return void(schedule.partition(loop, index_point(site)));
      case 7:
        if (site.body.as<Block>()) return void(schedule.distribute(loop));
        return void(schedule.partition(loop, index_point(site)));
      case 8:
      case 9:
        return schedule.parallel(loop);
      case 10:
        if (extent && *extent <= 8) return schedule.unroll(loop);
        return void(schedule.split(loop, 3));
      case 11:
      case 12:
        if (extent && *extent >= 2) return schedule.vectorize(loop);
        return void(schedule.vectorize(loop, 4));
      case 13:
        return void(schedule.vectorize(loop, 2 << pick(6), 1 + pick(3)));
      case 14:
        if (pick(4) == 0) return schedule.streaming(buffer);
        if (pick(3) == 0) {
          std::vector<Buffer> own = buffers;
          std::erase_if(own, [](const Buffer& b) { return b->role != Role::temp; });
          return layout(on(own.empty() ? buffer : own[static_cast<size_t>(pick(static_cast<int>(own.size())))]));
        }
        return stage(loop, buffer);
      case 15:
        if (pick(3) == 0 && !loops_below(site.body).empty())
          return schedule.prefetch_across(loop, inner_of(site), buffer, 1 + pick(4), 1 + pick(3));
        return schedule.prefetch(loop, buffer, pick(4) ? 1 + pick(4) : INT64_MAX - pick(3), 1 + pick(3),
                                 pick(3) ? Expr() : end_further_on(loop));
      case 16: {
        Buffer own = buffer;
        walk(site.body, [&](const Stmt& s) {
          if (const Alloc* a = s.as<Alloc>()) own = a->buffer;
        });
        if (pick(3) == 0) return overlap(loop);
        schedule.hoist_zeroed_buffer(loop, on(own));
        hoisted_ = true;
        return;
      }
      case 17:
      case 18:
        return join(loop);
      case 19:
        if (sums && pick(2)) {
          using By = Schedule::NamedBy;
          return void(schedule.group_named(loop, on(*sums), pick(2) ? By::lending : By::sorting));
        }
        if (sums && pick(3) == 0) return void(schedule.group_sorted(loop, on(*sums), 2 << pick(3)));
        if (sums) return void(schedule.group(loop, on(*sums)));
        return join(loop);
      case 20:
        if (sums && pick(2)) return void(schedule.record(loop, on(*sums)));
        if (sums) return void(schedule.owner(loop, on(*sums), 1 + pick(6)));
        return join(loop);
      case 21:
        if (sums && pick(3) == 0) return void(schedule.bin_sorted(loop, on(*sums), 1 + pick(6), 2 << pick(3)));
        if (sums) return void(schedule.bin(loop, on(*sums), 1 + pick(6), 1 + pick(8)));
        return join(loop);
      case 22:
        if (pick(3) == 0) return void(schedule.read_ahead(loop, 2 + pick(4)));
        if (inner && pick(2)) return void(schedule.pack_segments(loop, 2 + pick(6)));
        return schedule.hoist_lets(loop);
      case 23:
        return schedule.sum_in_place(loop, buffer);
      case 24:
        return schedule.skip_empty(loop, loops_below(site.body).empty() ? loop : inner_of(site));
      case 25:
        return void(schedule.reverse(loop));
      case 26:
        if (const Expr v = end_further_on(loop); v.as<Var>()) return void(schedule.specialise(loop, v, 2 + pick(3)));
        return void(schedule.reverse(loop));
      default:
        if (pick(2) && sums) return schedule.atomic(loop, on(*sums));
        return void(schedule.privatise(loop, buffer));
    }
  }
  Schedule::Loop inner_of(const For& loop) {
    const std::vector<const For*> below = loops_below(loop.body);
    return below[static_cast<size_t>(pick(static_cast<int>(below.size())))]->var.id;
  }
  // Some number that is known outside the loop.
  Expr end_further_on(Schedule::Loop loop) {
    const std::vector<Var> vars = visible(schedule.kernel(), find_loop(schedule.kernel(), loop), false);
    const Var* v = vars.empty() ? nullptr : &vars[static_cast<size_t>(pick(static_cast<int>(vars.size())))];
    return v && v->type == Type{} && pick(4) ? var(*v) : Expr(pick(30));
  }
  // The loop inside with only lets, checks and conditions around it.
  static const For* nested_in(const For& loop) {
    Stmt s = loop.body;
    while (is_wrapper(s) && !s.as<For>()) s = body_of(s);
    return s.as<For>();
  }
  // Of a loop with two in it, one after the other, if there is any.
  void overlap(Schedule::Loop loop) {
    std::vector<std::array<Schedule::Loop, 3>> all;
    for (const For* f : loops_below(schedule.kernel().body)) {
      Stmt inside = f->body;
      while (inside.as<Let>()) inside = body_of(inside);
      const Block* b = inside.as<Block>();
      if (!b || b->stmts.size() != 2) continue;
      const std::vector<const For*> one = loops_below(b->stmts[0]), two = loops_below(b->stmts[1]);
      if (!one.empty() && !two.empty()) all.push_back({f->var.id, one[0]->var.id, two[0]->var.id});
    }
    if (all.empty()) all.push_back({loop, loop, loop});
    const auto& [outer, first, second] = all[static_cast<size_t>(pick(static_cast<int>(all.size())))];
    schedule.overlap(outer, first, second, 1 + pick(3));
  }
  // With one of the loops that have the same bounds.
  void join(Schedule::Loop loop) {
    std::vector<Schedule::Loop> others;
    const std::vector<Schedule::Loop> all = schedule.loops();
    const auto after = std::find(all.begin(), all.end(), loop);
    std::copy_if(after + 1, all.end(), std::back_inserter(others),
                 [&](Schedule::Loop other) { return equal(schedule.get(other).extent, schedule.get(loop).extent); });
    if (others.empty()) return void(schedule.split(loop, 2 + pick(6)));
    schedule.join(loop, others[pick(static_cast<int>(others.size()))]);
  }
  void expand(Schedule::Loop loop, Schedule::Loop reduction) {
    const bool at_once = pick(2);
    // The loops around it, innermost first.
    std::vector<Schedule::Loop> around;
    const Site site = find_reduction(schedule.kernel(), reduction);
    for (const Stmt& s : site.path)
      if (const For* f = s.as<For>()) around.insert(around.begin(), f->var.id);
    const Schedule::Loop outer =
        around.empty() || pick(4) == 0 ? 0 : around[static_cast<size_t>(pick(static_cast<int>(around.size())))];
    switch (pick(8)) {
      case 0:
        return void(schedule.expand(reduction, pick(3) ? 0 : 1 + pick(4)));
      case 1:
        return void(schedule.expand_parts(reduction));
      case 2:
        return void(schedule.expand_staged(reduction, 1 + pick(4), outer));
      case 3:
        return void(schedule.split_chunks(reduction, outer));
      case 4:
        return schedule.reassociate(reduction, pick(2) ? SumOrder::in_tree(16) : SumOrder::in_chunks(1 + pick(8)));
      default:
        if (!around.empty()) loop = around[0];
        return void(schedule.expand_across(loop, pick(6), at_once));
    }
  }
  // The dims in any order, some of them longer.
  void layout(const Buffer& buffer) {
    std::vector<int> order;
    for (size_t d = 0; d < buffer->dims.size(); ++d) order.push_back(static_cast<int>(d));
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<int64_t> dims;
    for (const int d : order) {
      const std::optional<int64_t> length = as_int(buffer->dims[static_cast<size_t>(d)]);
      dims.push_back(length && pick(2) ? *length + pick(3) : 0);
    }
    schedule.layout(buffer, order, pick(2) ? dims : std::vector<int64_t>{});
  }
  // The whole buffer, or in some dims a region around a variable.
  void stage(Schedule::Loop loop, const Buffer& buffer) {
    const std::vector<Var> vars = visible(schedule.kernel(), find_loop(schedule.kernel(), loop), true);
    std::vector<Expr> begin, extent;
    for (const Expr& dim : buffer->dims) {
      const Var& v = vars.empty() ? Var() : vars[static_cast<size_t>(pick(static_cast<int>(vars.size())))];
      const int before = pick(2), behind = pick(2);
      const bool whole = pick(2) || v.type != Type{} || v.id == 0;
      begin.push_back(whole ? Expr(0) : before ? var(v) - before : var(v));
      extent.push_back(whole ? (uses_only(dim, vars) && writable(dim) ? dim : Expr(4)) : Expr(1 + before + behind));
    }
    begin_ = begin, extent_ = extent;
    schedule.stage(loop, buffer, begin, extent);
  }
  Expr index_point(const For& site) {
    const Expr middle = site.begin + floor_div(site.extent, 2);
    if (pick(2) && writable(middle)) return middle;
    return pick(8) ? pick(9) : pick(2) ? Expr(INT64_MAX - pick(2)) : Expr(INT64_MIN + pick(2));
  }
  // Whether a trace can represent it.
  static bool writable(const Expr& e) {
    bool ok = true;
    walk(e, [&](const Expr& x) {
      const Binary* b = x.as<Binary>();
      const bool written = b && (b->op <= BinaryOp::mul || (b->op >= BinaryOp::floor_div && b->op <= BinaryOp::max));
      ok &= x.type() == Type{} && (x.as<Var>() || x.as<Const>() || written);
    });
    return ok;
  }

  std::mt19937_64 random_;
  const bool seldom_;
  bool hoisted_ = false;              // by the step before: what overlap has a place for
  Buffer buffer_;                     // of the current step
  std::vector<Expr> begin_, extent_;  // and its window
  std::optional<Refusal> refusal_;
  std::string last_reason_;
};

inline const Target gpu_target{.gpu = true, .multiprocessors = 4, .block_threads = 32, .shared_bytes = 256};

// Binds loops at random, some before the general schedule binds the remaining ones.
class RandomGpuSchedule {
 public:
  RandomGpuSchedule(const Kernel& kernel, uint64_t seed) : schedule(kernel), random_(seed * 2 + 1) {}

  // Whether steps were accepted.
  bool step() {
    std::vector<Schedule::Loop> loops = schedule.loops();
    std::erase_if(loops, [&](Schedule::Loop loop) { return schedule.get(loop).kind != ForKind::serial; });
    if (loops.empty()) return false;
    const Schedule::Attempt done =
        schedule.attempt([&](Schedule& trial) { apply(trial, loops[pick(static_cast<int>(loops.size()))]); });
    ++(done ? accepted : refused);
    return static_cast<bool>(done);
  }

  Schedule schedule;
  int accepted = 0, refused = 0;

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  void apply(Schedule& s, Schedule::Loop loop) {
    const For* inner = s.get(loop).body.as<For>();
    const std::optional<Buffer> sums = scattered(s.get(loop));
    for (const For* below : loops_below(s.get(loop).body))
      if (below->kind == ForKind::thread && pick(2)) return s.load_ahead(loop, below->var.id);
    if (sums && pick(8) == 0) return void(s.record(loop, *sums));
    if (const Block* b = s.get(loop).body.as<Block>(); b && b->stmts.size() == 2 && pick(2)) {
      const std::vector<const For*> first = loops_below(b->stmts[0]), second = loops_below(b->stmts[1]);
      if (!first.empty() && !second.empty())
        return void(s.overlap(loop, first[0]->var.id, second[0]->var.id, 1 + pick(3)));
    }
    if (sums && pick(3) == 0) {  // what is sorted is then bound like any loop
      if (pick(2)) {
        const Schedule::Groups groups = s.group(loop, *sums);
        return pick(2) ? s.bind(groups.rows[0], ForKind::grid) : void();
      }
      if (pick(3) == 0) {
        const Schedule::SortedBins bins = s.bin_sorted(loop, *sums, 1 + pick(6), 2 << pick(3));
        return pick(2) ? void(s.pack_segments(bins.segments, 2 + pick(6))) : s.bind(bins.runs, ForKind::grid);
      }
      if (pick(2)) return void(s.bin(loop, *sums, 1 + pick(6), 1 + pick(8)));
      return s.bind(s.owner(loop, *sums, 1 + pick(6)), ForKind::grid);
    }
    switch (pick(10)) {
      case 0:
      case 1: {
        const Schedule::Split cut = s.split_guarded(loop, 1 << (1 + pick(5)));
        s.bind(cut.outer, ForKind::grid);
        return s.bind(cut.inner, ForKind::thread);
      }
      case 2:
        if (inner) {
          s.bind(inner->var.id, pick(2) ? ForKind::thread : ForKind::warp);
          return s.bind(loop, ForKind::grid);
        }
        return s.bind(loop, pick(2) ? ForKind::grid : ForKind::thread);
      case 3: {
        const Schedule::Split cut = s.split_guarded(loop, 4 << pick(4));
        s.bind(cut.inner, ForKind::lane);
        return s.bind(cut.outer, ForKind::warp);
      }
      case 4:
        return s.bind(s.split_guarded(loop, 4).outer, ForKind::grid);
      case 5: {
        const Schedule::Split cut = s.split(loop, 2 << pick(2));
        return cut.inner ? s.vectorize(cut.inner) : void();
      }
      case 6:
        if (inner) return void(s.fuse(loop, inner->var.id));
        return void(s.split(loop, 2 + pick(4)));
      case 7:
        if (inner) return s.reorder(loop, inner->var.id);
        return void(s.split_guarded(loop, 2 + pick(4)));
      case 8:
        return void(s.privatise(
            loop, s.kernel().buffers[static_cast<size_t>(pick(static_cast<int>(s.kernel().buffers.size())))]));
      default:
        return void(s.distribute(loop));
    }
  }

  std::mt19937_64 random_;
};

}  // namespace gradloom::ir::testing
