// The text of a trace: one line per step, its words separated by one space. Loops and buffers are referred to by name
// ("i", "i#1"), expressions are in prefix form.
#include <algorithm>
#include <charconv>
#include <sstream>

#include "gradloom/schedule.h"
#include "ir/index_math.h"
#include "ir/reduction.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {
namespace {

[[noreturn]] void bad(const std::string& line, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "trace: " + why + " in \"" + line + "\"");
}

// A plain name means the innermost variable of that name; any other is identified by its position among all of that
// name.
std::string write_var(const Var& v, const std::vector<Var>& vars) {
  for (size_t i = vars.size(); i-- > 0;) {
    if (vars[i].id == v.id) return v.name;
    if (vars[i].name == v.name) break;
  }
  for (size_t i = 0; i < vars.size(); ++i)
    if (vars[i].id == v.id) return v.name + "#" + std::to_string(i);
  throw Error(ErrorCode::invalid_argument, "trace: variable " + v.name + " is not known at this loop");
}

constexpr BinaryOp written_ops[] = {BinaryOp::add,       BinaryOp::sub, BinaryOp::mul, BinaryOp::floor_div,
                                    BinaryOp::floor_mod, BinaryOp::min, BinaryOp::max};

struct Reader {
  const std::string& text;
  const std::vector<Var>& vars;
  size_t at = 0;

  [[noreturn]] void fail(const char* what) const {
    bad(text, std::string(what) + " at column " + std::to_string(at + 1));
  }
  void expect(char c) {
    if (at >= text.size() || text[at] != c) fail((std::string("no '") + c + "'").c_str());
    ++at;
  }
  Expr read(int depth = 0) {
    if (depth > 200) fail("nesting deeper than 200 levels");
    const size_t end = std::min(text.find_first_of("(),", at), text.size());
    const std::string word = text.substr(at, end - at);
    if (word.empty()) fail("no expression");
    at = end;
    if (word[0] == '-' || (word[0] >= '0' && word[0] <= '9')) {
      int64_t value = 0;
      const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      if (error != std::errc() || stop != word.data() + word.size()) fail("a bad number");
      return value;
    }
    if (at < text.size() && text[at] == '(') {
      if (word == to_string(UnaryOp::neg)) {
        ++at;
        const Expr a = read(depth + 1);
        expect(')');
        return -a;
      }
      for (BinaryOp op : written_ops) {
        if (word != to_string(op)) continue;
        ++at;
        const Expr a = read(depth + 1);
        expect(',');
        const Expr b = read(depth + 1);
        expect(')');
        return binary(op, a, b);
      }
      fail("an unknown operator");
    }
    for (size_t i = vars.size(); i-- > 0;)
      if (vars[i].name == word || vars[i].name + "#" + std::to_string(i) == word) return var(vars[i]);
    fail("an unknown variable");
  }
};

int64_t number(const std::string& line, const std::string& word) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || stop != word.data() + word.size()) bad(line, "no number: " + word);
  return value;
}

int small_number(const std::string& line, const std::string& word) {
  const int64_t value = number(line, word);
  if (value < -1000000 || value > 1000000) bad(line, "a number out of range: " + word);
  return static_cast<int>(value);
}

std::vector<Expr> expressions(const std::string& word, const std::vector<Var>& vars) {
  std::vector<Expr> result;
  std::istringstream parts(word);
  for (std::string part; std::getline(parts, part, ';');) result.push_back(read_expr(part, vars));
  return result;
}

}  // namespace

std::string write_expr(const Expr& e, const std::vector<Var>& vars) {
  if (const std::optional<int64_t> n = as_int(e); n && e.dtype() == DType::i64) return std::to_string(*n);
  if (const Var* v = e.as<Var>()) return write_var(*v, vars);
  if (const Unary* u = e.as<Unary>(); u && u->op == UnaryOp::neg && e.type() == Type{})
    return std::string(to_string(u->op)) + "(" + write_expr(u->a, vars) + ")";
  const Binary* b = e.as<Binary>();
  if (!b || e.type() != Type{} ||
      std::find(std::begin(written_ops), std::end(written_ops), b->op) == std::end(written_ops))
    throw Error(ErrorCode::invalid_argument,
                "trace: an expression of a step may hold constants, variables and neg, add, sub, mul, floor_div, "
                "floor_mod, min, max");
  return std::string(to_string(b->op)) + "(" + write_expr(b->a, vars) + "," + write_expr(b->b, vars) + ")";
}

Expr read_expr(const std::string& text, const std::vector<Var>& vars) {
  Reader reader{text, vars};
  const Expr e = reader.read();
  if (reader.at != text.size()) reader.fail("a surplus");
  return e;
}

void Schedule::replay(const std::vector<std::string>& trace) {
  Schedule work(kernel_, level_);
  work.sorted_ = sorted_;
  for (const std::string& line : trace) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.empty()) bad(line, "no step");
    const std::string& step = words[0];
    const auto arguments = [&](size_t least, size_t most) {
      if (words.size() - 1 < least || words.size() - 1 > most)
        bad(line, step + " takes " + std::to_string(least) + (most > least ? " to " + std::to_string(most) : "") +
                      " words, got " + std::to_string(words.size() - 1));
    };
    const auto flag = [&](const std::vector<std::string>& from, size_t i) {
      const int64_t chosen = i < from.size() ? number(line, from[i]) : 0;
      if (chosen < 0 || chosen > 1) bad(line, "a choice out of range: " + from[i]);
      return chosen != 0;
    };
    const auto loop_at = [&](size_t i) { return work.loop(words[i]); };
    const auto buffer_at = [&](size_t i) { return find_buffer(work.kernel_, words[i]); };
    const auto order_at = [&](size_t i) {
      try {
        return sum_order(words[i] + (i + 1 < words.size() ? " " + words[i + 1] : ""));
      } catch (const Error& error) {
        bad(line, error.what());
      }
    };
    if (step == "split") {
      arguments(2, 2), work.split(loop_at(1), number(line, words[2]));
    } else if (step == "split_guarded") {
      arguments(2, 2), work.split_guarded(loop_at(1), number(line, words[2]));
    } else if (step == "fuse") {
      arguments(2, 2), work.fuse(loop_at(1), loop_at(2));
    } else if (step == "reorder") {
      arguments(2, 2), work.reorder(loop_at(1), loop_at(2));
    } else if (step == "partition") {
      arguments(2, 2),
          work.partition(loop_at(1),
                         read_expr(words[2], visible(work.kernel_, find_loop(work.kernel_, loop_at(1)), false)));
    } else if (step == "specialise") {
      arguments(3, 3),
          work.specialise(loop_at(1),
                          read_expr(words[2], visible(work.kernel_, find_loop(work.kernel_, loop_at(1)), false)),
                          number(line, words[3]));
    } else if (step == "reverse") {
      arguments(1, 1), work.reverse(loop_at(1));
    } else if (step == "distribute") {
      arguments(1, 1), work.distribute(loop_at(1));
    } else if (step == "join") {
      arguments(2, 2), work.join(loop_at(1), loop_at(2));
    } else if (step == "group") {
      arguments(2, 2), work.group(loop_at(1), buffer_at(2));
    } else if (step == "group_named") {
      arguments(3, 3);
      if (words[3] != "lending" && words[3] != "sorting") bad(line, "neither lending nor sorting: " + words[3]);
      work.group_named(loop_at(1), buffer_at(2), words[3] == "lending" ? NamedBy::lending : NamedBy::sorting);
    } else if (step == "group_sorted") {
      arguments(3, 3), work.group_sorted(loop_at(1), buffer_at(2), number(line, words[3]));
    } else if (step == "separate_long") {
      arguments(3, 3), work.separate_long(loop_at(1), loop_at(2), number(line, words[3]));
    } else if (step == "split_parts") {
      arguments(2, 2), work.split_parts(loop_at(1), number(line, words[2]));
    } else if (step == "read_ahead") {
      arguments(2, 2), work.read_ahead(loop_at(1), number(line, words[2]));
    } else if (step == "owner") {
      arguments(3, 3), work.owner(loop_at(1), buffer_at(2), number(line, words[3]));
    } else if (step == "parallel") {
      arguments(1, 1), work.parallel(loop_at(1));
    } else if (step == "serial") {
      arguments(1, 1), work.serial(loop_at(1));
    } else if (step == "bind") {
      arguments(2, 2);
      const auto kind = std::find_if(std::begin(all_for_kinds), std::end(all_for_kinds),
                                     [&](ForKind k) { return words[2] == to_string(k); });
      if (kind == std::end(all_for_kinds)) bad(line, "an unknown kind of loop: " + words[2]);
      work.bind(loop_at(1), *kind);
    } else if (step == "unroll") {
      arguments(1, 1), work.unroll(loop_at(1));
    } else if (step == "vectorize") {
      arguments(1, 3);
      if (words.size() == 2)
        work.vectorize(loop_at(1));
      else
        work.vectorize(loop_at(1), small_number(line, words[2]), words.size() == 4 ? small_number(line, words[3]) : 1);
    } else if (step == "stage") {
      arguments(2, 4);  // a buffer of rank 0 has no window
      const std::vector<Var> vars = visible(work.kernel_, find_loop(work.kernel_, loop_at(1)), true);
      work.stage(loop_at(1), buffer_at(2), words.size() > 3 ? expressions(words[3], vars) : std::vector<Expr>{},
                 words.size() > 4 ? expressions(words[4], vars) : std::vector<Expr>{});
    } else if (step == "hoist_zeroed_buffer") {
      arguments(2, 2), work.hoist_zeroed_buffer(loop_at(1), buffer_at(2));
    } else if (step == "hoist_lets") {
      arguments(1, 1), work.hoist_lets(loop_at(1));
    } else if (step == "skip_empty") {
      arguments(2, 2), work.skip_empty(loop_at(1), loop_at(2));
    } else if (step == "privatise") {
      arguments(2, 2), work.privatise(loop_at(1), buffer_at(2));
    } else if (step == "expand") {
      arguments(1, 2), work.expand(work.reduction(words[1]), words.size() > 2 ? number(line, words[2]) : 0);
    } else if (step == "split_chunks") {
      arguments(1, 2), work.split_chunks(work.reduction(words[1]), words.size() > 2 ? loop_at(2) : 0);
    } else if (step == "reassociate") {
      arguments(2, 3), work.reassociate(work.reduction(words[1]), order_at(2));
    } else if (step == "expand_across") {
      arguments(2, 3), work.expand_across(loop_at(1), number(line, words[2]), flag(words, 3));
    } else if (step == "expand_staged") {
      arguments(2, 3);
      work.expand_staged(work.reduction(words[1]), number(line, words[2]), words.size() > 3 ? loop_at(3) : 0);
    } else if (step == "expand_parts") {
      arguments(1, 4);
      const bool across = words.size() > 3;  // of a loop and a tile
      if (words.size() == 3) bad(line, "a loop without the columns of a tile");
      work.expand_parts(work.reduction(words[1]), across ? loop_at(2) : 0, across ? number(line, words[3]) : 0,
                        flag(words, 4));
    } else if (step == "tile_product") {
      arguments(13, 14);
      ProductTiles tiles{.rows = small_number(line, words[2]),
                         .vectors = small_number(line, words[3]),
                         .lanes = small_number(line, words[4])};
      tiles.unroll_k = small_number(line, words[5]);
      tiles.block_m = number(line, words[6]), tiles.block_n = number(line, words[7]),
      tiles.block_k = number(line, words[8]), tiles.outer_n = number(line, words[9]);
      const auto choice = [&](const std::string& word, int most) {
        const int64_t chosen = number(line, word);
        if (chosen < 0 || chosen > most) bad(line, "a choice out of range: " + word);
        return chosen;
      };
      tiles.pack_a = choice(words[10], 1) != 0;
      tiles.pack_b = choice(words[11], 1) != 0;
      tiles.along_rows = choice(words[12], 1) != 0;
      tiles.share = static_cast<ProductTiles::Share>(choice(words[13], ProductTiles::columns_parallel));
      work.tile_product(loop_at(1), tiles, words.size() > 14 ? loop_at(14) : 0);
    } else if (step == "bin") {
      arguments(4, 4), work.bin(loop_at(1), buffer_at(2), number(line, words[3]), number(line, words[4]));
    } else if (step == "bin_sorted") {
      arguments(4, 4), work.bin_sorted(loop_at(1), buffer_at(2), number(line, words[3]), number(line, words[4]));
    } else if (step == "pack_segments") {
      arguments(2, 2), work.pack_segments(loop_at(1), number(line, words[2]));
    } else if (step == "record") {
      arguments(2, 2), work.record(loop_at(1), buffer_at(2));
    } else if (step == "load_ahead") {
      arguments(2, 2), work.load_ahead(loop_at(1), loop_at(2));
    } else if (step == "overlap") {
      arguments(4, 4), work.overlap(loop_at(1), loop_at(2), loop_at(3), number(line, words[4]));
    } else if (step == "prefetch_across") {
      arguments(5, 5);
      work.prefetch_across(loop_at(1), loop_at(2), buffer_at(3), number(line, words[4]), small_number(line, words[5]));
    } else if (step == "layout") {
      arguments(2, 3);
      const auto list = [&](size_t i) {
        std::vector<int64_t> result;
        std::istringstream parts(i < words.size() ? words[i] : "");
        for (std::string part; std::getline(parts, part, ';');) result.push_back(number(line, part));
        return result;
      };
      std::vector<int> order;
      for (const int64_t d : list(2)) {
        if (d < 0 || d >= 64) bad(line, "a dim out of range: " + std::to_string(d));
        order.push_back(static_cast<int>(d));
      }
      work.layout(buffer_at(1), order, list(3));
    } else if (step == "sum_in_place") {
      arguments(2, 2), work.sum_in_place(loop_at(1), buffer_at(2));
    } else if (step == "atomic") {
      arguments(2, 2), work.atomic(loop_at(1), buffer_at(2));
    } else if (step == "streaming") {
      arguments(1, 1), work.streaming(buffer_at(1));
    } else if (step == "prefetch") {
      arguments(4, 5);
      const std::vector<Var> vars = visible(work.kernel_, find_loop(work.kernel_, loop_at(1)), false);
      work.prefetch(loop_at(1), buffer_at(2), number(line, words[3]), small_number(line, words[4]),
                    words.size() > 5 ? read_expr(words[5], vars) : Expr());
    } else {
      bad(line, "unknown step " + step);
    }
  }
  kernel_ = work.kernel_, sorted_ = work.sorted_;
  trace_.insert(trace_.end(), work.trace_.begin(), work.trace_.end());
}

}  // namespace gradloom::ir
