#pragma once
// Random forward nests, as text: maps, reductions, gathers, scatters, recurrences, branches, temporaries in loops, and
// what a gradient must refuse. Values stay moderate, so that rounding does not hide an error.
#include <random>
#include <string>
#include <vector>

namespace gradloom::ir::testing {

struct RandomForward {
  std::string text;
  bool illegal = false;  // some statement overwrites what a gradient may need
};

class RandomForwardNest {
 public:
  explicit RandomForwardNest(uint64_t seed) : random_(seed) {}

  RandomForward build() {
    for (int i = 0; i < 2; ++i) parameters_ += "  in " + declared("x", some_dims()) + "\n";
    parameters_ += "  in idx: i64[4] in [0, 2]\n  in perm: i64[3] in [0, 2] injective\n";
    const int stages = 1 + pick(4);
    for (int i = 0; i < stages; ++i) stage(i + 1 == stages || chance(30));
    return {"kernel forward(n: i64 in [0, 6]) {\n" + parameters_ + body_ + "}\n", illegal_};
  }

 private:
  using Dims = std::vector<std::string>;
  struct Array {
    std::string name;
    Dims dims;
  };
  struct Loop {
    std::string var, extent;
  };

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  Dims some_dims() {
    static const Dims all{"n", "3", "4"};
    Dims dims(static_cast<size_t>(pick(3)));
    for (std::string& d : dims) d = all[static_cast<size_t>(pick(3))];
    return dims;
  }
  static std::string list(const Dims& parts) {
    std::string text;
    for (const std::string& p : parts) text += (text.empty() ? "" : ", ") + p;
    return "[" + text + "]";
  }
  std::string fresh(const std::string& stem) { return stem + std::to_string(names_++); }
  // Declares a float array that later expressions may read.
  std::string declared(const std::string& stem, const Dims& dims) {
    arrays_.push_back({fresh(stem), dims});
    return arrays_.back().name + ": f32" + list(dims);
  }

  // An index into a dim, of the loops around.
  std::string index(const std::string& dim, const std::vector<Loop>& loops) {
    std::vector<std::string> choices;
    for (const Loop& l : loops) {
      if (l.extent == dim) {
        for (int i = 0; i < 3; ++i) choices.push_back(l.var);
        choices.push_back(dim + " - 1 - " + l.var);
        choices.push_back("floor_mod(" + l.var + " + 2, " + dim + ")");
      }
      if (dim == "3" && l.extent == "4") choices.push_back("idx[" + l.var + "]");
      if (dim == "3" && l.extent == "3") choices.push_back("perm[" + l.var + "]");
      if (dim == "4" && l.extent == "3") choices.push_back(l.var + " + 1");
      if (dim == "3" && l.extent == "4") choices.push_back("floor_div(" + l.var + ", 2)");
    }
    if (dim != "n") choices.push_back(std::to_string(pick(3)));
    return choices.empty() ? "" : choices[static_cast<size_t>(pick(static_cast<int>(choices.size())))];
  }
  std::string load(const std::vector<Loop>& loops) {
    for (int tries = 0; tries < 8; ++tries) {
      const Array& a = arrays_[static_cast<size_t>(pick(static_cast<int>(arrays_.size())))];
      Dims at;
      for (const std::string& d : a.dims) at.push_back(index(d, loops));
      bool good = true;
      for (const std::string& i : at) good &= !i.empty();
      if (!good) continue;
      if (chance(10) && !loops.empty()) {
        const std::string guard = loops[0].var + " > 0";
        std::string inside = list(at);
        inside.pop_back();
        const std::string other = chance(50) ? "0.5f32" : load(loops);
        return a.name + inside + (at.empty() ? "" : " ") + "where " + guard + " else " + other + "]";
      }
      return a.name + list(at);
    }
    return "0.75f32";
  }
  std::string value(const std::vector<Loop>& loops, int depth = 2) {
    if (depth == 0 || chance(25)) return chance(10) ? "1.25f32" : load(loops);
    const auto part = [&] { return value(loops, depth - 1); };
    switch (pick(18)) {
      case 0:
      case 1:
        return "(" + part() + " + " + part() + ")";
      case 2:
        return "(" + part() + " - " + part() + ")";
      case 3:
      case 4:
        return part() + " * " + part();
      case 5:
        return part() + " / (abs(" + part() + ") + 0.5f32)";
      case 6:
        return "max(" + part() + ", " + part() + ")";
      case 7:
        return "min(" + part() + ", " + part() + ")";
      case 8:
        return "select(" + part() + " > " + part() + ", " + part() + ", " + part() + ")";
      case 9:
        return "fma(" + part() + ", " + part() + ", " + part() + ")";
      case 10:
        return "sqrt(abs(" + part() + ") + 0.25f32)";
      case 11:
        return "tanh(" + part() + ")";
      case 12:
        return "exp(-abs(" + part() + "))";
      case 13:
        return "(logistic(" + part() + ") - erf(" + part() + "))";
      case 14:
        return "(softplus(" + part() + ") + log1p(abs(" + part() + ")))";
      case 15:
        return "sin(" + part() + ") * cos(" + part() + ")";
      case 16:
        return power(loops, depth);
      default:
        return "(floor(" + part() + ") * " + part() + " - " + part() + ")";
    }
  }

  std::string power(const std::vector<Loop>& loops, int depth) {
    static const std::vector<std::string> any{"0.0", "1.0", "2.0", "3.0", "4.0"},
        positive{"0.5", "-1.0", "-0.5", "1.75"};
    const auto one_of = [&](const std::vector<std::string>& all) {
      return all[static_cast<size_t>(pick(static_cast<int>(all.size())))] + "f32)";
    };
    if (chance(50)) return "pow(sin(" + value(loops, depth - 1) + "), " + one_of(any);
    return "pow(abs(" + value(loops, depth - 1) + ") + 0.5f32, " + one_of(positive);
  }

  void line(int indent, const std::string& text) {
    body_ += std::string(2 * static_cast<size_t>(indent), ' ') + text + "\n";
  }
  // Loops over dims; returns them and the depth inside.
  std::vector<Loop> open(const Dims& dims, int& indent) {
    std::vector<Loop> loops;
    for (const std::string& d : dims) {
      loops.push_back({fresh("i"), d});
      line(indent++, "for " + loops.back().var + " in 0 .. " + d + " {");
    }
    return loops;
  }
  void close(int& indent, size_t loops) {
    for (size_t i = 0; i < loops; ++i) line(--indent, "}");
  }
  static Dims vars(const std::vector<Loop>& loops) {
    Dims names;
    for (const Loop& l : loops) names.push_back(l.var);
    return names;
  }

  void stage(bool output) {
    const int kind = pick(16);
    Dims dims = some_dims();
    if (kind == 5 || kind == 6) dims = {"3"};
    if (kind == 7 || kind == 8 || kind == 11) dims = {"4"};
    if (kind == 9) dims = {"3"};
    Array own{fresh(output ? "y" : "t"), dims};
    const std::string declaration = own.name + ": f32" + list(dims);
    if (output)
      parameters_ += "  out " + declaration + "\n";
    else
      line(1, "alloc " + declaration);
    write(own, kind);
    arrays_.push_back(own);
  }

  void write(const Array& own, int kind) {
    int indent = 1;
    switch (kind) {
      case 3:
      case 4:
        return reduction(own, indent);
      case 5:
      case 6:
        return scatter(own, indent);
      case 7:
      case 8:
        return recurrence(own, indent);
      case 9:
        return rows(own, indent);
      case 10:
        return branch(own, indent);
      case 11:
        return shifted(own, indent);
      case 12:
        return twice(own, indent);
      case 13:
        return chance(40) ? in_place(own, indent) : map(own, indent);
      case 14:
        return lets(own, indent);
      default:
        return map(own, indent);
    }
  }

  void map(const Array& own, int indent) {
    const std::vector<Loop> loops = open(own.dims, indent);
    line(indent, own.name + list(vars(loops)) + " = " + value(loops, 3));
    close(indent, loops.size());
  }
  void lets(const Array& own, int indent) {
    std::vector<Loop> loops = open(own.dims, indent);
    const std::string v = fresh("v"), w = fresh("w");
    line(indent, "let " + v + ": f32 = " + value(loops));
    line(indent, "let " + w + ": f32 = " + v + " * " + value(loops) + " + " + v);
    line(indent, own.name + list(vars(loops)) + " = tanh(" + w + ") * " + v + " + " + w);
    close(indent, loops.size());
  }
  void reduction(const Array& own, int indent) {
    std::vector<Loop> loops = open(own.dims, indent);
    const int op = pick(6);
    const std::string at = own.name + list(vars(loops));
    const Loop inner{fresh("k"), chance(50) ? "4" : "3"};
    if (op == 5) {
      static const std::vector<std::string> words{"sum", "product", "max", "min"};
      loops.push_back(inner);
      line(indent, at + " = " + words[static_cast<size_t>(pick(4))] + " " + inner.var + " in 0 .. " + inner.extent +
                       (chance(50) ? " loop" : " tree 16") + (chance(30) ? " where " + inner.var + " > 0" : "") +
                       " of " + value(loops));
      return close(indent, loops.size() - 1);
    }
    static const std::vector<std::string> starts{"0.0f32", "0.0f32", "-1000.0f32", "1000.0f32", "1.5f32"};
    line(indent, at + " = " + starts[static_cast<size_t>(op)]);
    line(indent++, "for " + inner.var + " in 0 .. " + inner.extent + " {");
    loops.push_back(inner);
    if (op == 1)
      line(indent, at + " fma= (" + value(loops) + ", " + value(loops) + ")");
    else
      line(indent, at + (op == 0 ? " += " : op == 2 ? " max= " : op == 3 ? " min= " : " *= ") + value(loops));
    close(indent, loops.size());
  }
  void scatter(const Array& own, int indent) {
    std::vector<Loop> fill = open({"3"}, indent);
    line(indent, own.name + list(vars(fill)) + " = " + (chance(50) ? "0.0f32" : value(fill, 1)));
    close(indent, 1);
    const bool overwrites = chance(30), injective = chance(50);
    const std::string from = overwrites && injective ? "perm" : "idx";
    const std::vector<Loop> loops = open({from == "perm" ? "3" : "4"}, indent);
    line(indent, own.name + "[" + from + "[" + loops[0].var + "]] " + (overwrites ? "= " : "+= ") + value(loops));
    if (overwrites) illegal_ = true;  // the fill may have a gradient
    close(indent, 1);
  }
  void recurrence(const Array& own, int indent) {
    line(indent, own.name + "[0] = " + value({}, 1));
    const std::vector<Loop> loops = open({"3"}, indent);
    const std::string t = loops[0].var, before = own.name + "[" + t + "]";
    line(indent, own.name + "[" + t + " + 1] = tanh(" + before + " + " + value(loops) + ") * " +
                     (chance(50) ? before : value(loops, 1)));
    close(indent, 1);
  }
  void rows(const Array& own, int indent) {
    std::vector<Loop> loops = open(own.dims, indent);
    const std::string s = fresh("s"), e = fresh("e");
    line(indent, "alloc " + s + ": f32[1]");
    line(indent, s + "[0] = 0.0f32");
    line(indent, "alloc " + e + ": f32[4]");
    std::vector<Loop> inner = loops;
    inner.push_back({fresh("k"), "4"});
    const std::string k = inner.back().var;
    line(indent++, "for " + k + " in 0 .. 4 {");
    line(indent, e + "[" + k + "] = " + value(inner));
    line(indent, s + "[0] += " + e + "[" + k + "] * " + e + "[" + k + "]");
    line(--indent, "}");
    line(indent, own.name + list(vars(loops)) + " = " + e + "[1] / sqrt(" + s + "[0] + 0.5f32) + " + e + "[3]");
    close(indent, loops.size());
  }
  void branch(const Array& own, int indent) {
    const std::vector<Loop> loops = open(own.dims, indent);
    const std::string at = own.name + list(vars(loops));
    line(indent, "if " + load(loops) + " > 0.25f32 {");
    line(indent + 1, at + " = " + value(loops));
    line(indent, "} else {");
    line(indent + 1, at + " = " + value(loops));
    line(indent, "}");
    close(indent, loops.size());
  }
  // Zeros, of which some are stored to again: they have no gradient.
  void shifted(const Array& own, int indent) {
    std::vector<Loop> fill = open({"4"}, indent);
    line(indent, own.name + list(vars(fill)) + " = 0.0f32");
    close(indent, 1);
    const std::vector<Loop> loops = open({"3"}, indent);
    line(indent, own.name + "[" + loops[0].var + " + 1] = " + value(loops));
    close(indent, 1);
  }
  void twice(const Array& own, int indent) {
    map(own, indent);
    const std::vector<Loop> loops = open(own.dims, indent);
    line(indent, own.name + list(vars(loops)) + " += " + value(loops));
    close(indent, loops.size());
  }
  void in_place(const Array& own, int indent) {
    map(own, indent);
    illegal_ = true;
    const std::vector<Loop> loops = open(own.dims, indent);
    const std::string at = own.name + list(vars(loops));
    line(indent, at + " = " + at + " * " + value(loops));
    close(indent, loops.size());
  }

  std::mt19937_64 random_;
  std::vector<Array> arrays_;
  std::string parameters_, body_;
  int names_ = 0;
  bool illegal_ = false;
};

}  // namespace gradloom::ir::testing
