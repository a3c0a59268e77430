#pragma once
// The interpreter's own form of a kernel: a tree in which variables and buffers are slots of a frame.
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "ir/interpret/memory.h"

namespace gradloom::ir::interp {

// The values in scope. Inside a vector loop each iteration has its own frame.
struct Frame {
  std::vector<uint64_t> vars;
  std::vector<Array*> arrays;
};

struct ExprCode {
  explicit ExprCode(int lane_count) : lanes(lane_count) {}
  virtual ~ExprCode() = default;
  virtual uint64_t scalar(Frame& frame) const = 0;             // of one lane
  virtual void vector(Frame& frame, uint64_t* out) const = 0;  // any number of lanes
  const int lanes;
};
using ExprPtr = std::unique_ptr<ExprCode>;

struct StmtCode {
  virtual ~StmtCode() = default;
  // For all frames; a statement finishes for all of them before the next begins.
  virtual void run(std::span<Frame* const> frames) = 0;
};
using StmtPtr = std::unique_ptr<StmtCode>;

// Storage for lanes: on the stack when they are few.
class Lanes {
 public:
  explicit Lanes(size_t n) {
    if (n > few) heap_.resize(n);
    data_ = n > few ? heap_.data() : inline_;
  }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;
  uint64_t* data() { return data_; }
  uint64_t& operator[](size_t i) { return data_[i]; }

 private:
  static constexpr size_t few = 64;
  uint64_t* data_;
  uint64_t inline_[few];
  std::vector<uint64_t> heap_;
};

// The indices of an access: `lanes` indices of `rank` numbers each, lane by lane.
struct Access {
  size_t array = 0;
  int lanes = 1;
  std::vector<ExprPtr> index;
  size_t rank() const { return index.size(); }
  void scalar(Frame& frame, int64_t* out) const {
    for (size_t d = 0; d < index.size(); ++d) out[d] = static_cast<int64_t>(index[d]->scalar(frame));
  }
  void vector(Frame& frame, int64_t* out) const;
};

// Restores the outer binding that an inner name shadowed, or ends the inner name's scope.
template <class Map>
class Scope {
 public:
  Scope(Map& map, int64_t id) : map_(map), id_(id) {
    if (auto found = map.find(id); found != map.end()) hidden_ = found->second;
  }
  ~Scope() {
    if (hidden_)
      map_[id_] = *hidden_;
    else
      map_.erase(id_);
  }

 private:
  Map& map_;
  int64_t id_;
  std::optional<typename Map::mapped_type> hidden_;
};

void require_scalar(const ExprCode& code, const char* what);  // else a fault

// Translates a kernel; faults on whatever is not declared.
class Translator {
 public:
  explicit Translator(Run& run) : run_(run) {}
  ExprPtr expr(const Expr& e);
  ExprPtr alike(
      const Expr& e);  // of a statement: where all threads of a block, or lanes of a warp, run it uniformly, a strand
  StmtPtr stmt(const Stmt& s);
  size_t declare(const Var& v);
  size_t declare(const Buffer& b);
  std::vector<ExprPtr> exprs(const std::vector<Expr>& list);
  struct ShapeCode {
    std::vector<ExprPtr> dims, strides;
    ExprPtr min, max;
    Array::Shape operator()(const BufferNode& node, Frame& frame) const;
  };
  ShapeCode shape(const Buffer& buffer);
  Frame frame() const { return {std::vector<uint64_t>(var_slots_), std::vector<Array*>(array_slots_)}; }

 private:
  struct Binding {
    size_t slot;
    Type type;
  };
  size_t find(const Buffer& b) const;
  Access access(const Buffer& buffer, const std::vector<Expr>& index, int lanes);

  ExprPtr make(const Const& n, Type type);
  ExprPtr make(const Var& n, Type type);
  ExprPtr make(const Load& n, Type type);
  ExprPtr make(const Unary& n, Type type);
  ExprPtr make(const Binary& n, Type type);
  ExprPtr make(const Fma& n, Type type);
  ExprPtr make(const Select& n, Type type);
  ExprPtr make(const Cast& n, Type type);
  ExprPtr make(const Bitcast& n, Type type);
  ExprPtr make(const Ramp& n, Type type);
  ExprPtr make(const Broadcast& n, Type type);
  ExprPtr make(const Shuffle& n, Type type);
  ExprPtr make(const Intrinsic& n, Type type);
  ExprPtr make(const Math& n, Type type);
  StmtPtr make(const For& n);
  StmtPtr make(const Block& n);
  StmtPtr make(const Let& n);
  StmtPtr make(const Store& n);
  StmtPtr make(const Accumulate& n);
  StmtPtr make(const Reduce& n);
  StmtPtr make(const If& n);
  StmtPtr make(const Alloc& n);
  StmtPtr make(const Check& n);
  StmtPtr make(const Evaluate& n);
  StmtPtr make(const Barrier& n);

  Run& run_;
  std::unordered_map<int64_t, Binding> vars_;
  std::unordered_map<int64_t, size_t> arrays_;
  size_t var_slots_ = 0, array_slots_ = 0;
};

}  // namespace gradloom::ir::interp
