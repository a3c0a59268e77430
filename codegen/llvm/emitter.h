#pragma once
// Lowered kernel -> LLVM IR. Private to this folder. Emission is pure: it reads the kernel and the ISA and writes a
// module; it knows no toolchain. Every expression becomes the instructions that gradloom/expr.h defines: no fast-math
// flag, no contraction, no reassociation.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <optional>
#include <unordered_map>

#include "codegen/llvm/compiler.h"
#include "ir/analysis/ranges.h"

namespace gradloom::codegen {

bool has_feature(const Isa& isa, std::string_view feature);

// The properties of the instruction set that emission depends on.
struct Machine {
  explicit Machine(const Isa& isa);
  int vector_bytes;
  bool x86;
  bool fma;          // a fused multiply-add instruction; without it LLVM calls libm
  bool f16c;         // f16 <-> f32 instructions
  bool masks;        // masked loads and stores of 4- and 8-byte elements
  bool small_masks;  // ... of 1- and 2-byte elements as well
  bool scatter;      // masked gathers and scatters of 4- and 8-byte elements
};

// An i64 value as base + constant + lane * stride + offsets[lane]; an absent part is zero.
struct Affine {
  llvm::Value* base = nullptr;
  int64_t constant = 0;
  llvm::Value* stride = nullptr;
  std::vector<int64_t> offsets = {};
};

class Emitter {
 public:
  Emitter(llvm::Module& module, const Isa& isa);
  void kernel(const ir::Kernel& kernel, const std::string& symbol);

 private:
  // A variable in scope. distinct: no two lanes are equal.
  struct Bound {
    llvm::Value* value = nullptr;
    std::optional<Affine> affine;
    bool distinct = false;
  };
  // A buffer in scope: its address and strides (in elements) as values of the current function.
  struct Memory {
    llvm::Value* base = nullptr;
    std::vector<llvm::Value*> strides;
    uint64_t alignment = 1;  // bytes, of the base
  };
  // The address of an access: element `offset + constant + lane * stride + vector[lane]` of the buffer.
  struct Address {
    const ir::BufferNode* buffer = nullptr;
    llvm::Value* base = nullptr;
    llvm::Value* offset = nullptr;
    int64_t constant = 0;
    llvm::Value* stride = nullptr;
    llvm::Value* vector = nullptr;
    uint64_t base_alignment = 1;
    // Powers of two that divide the element index of the first and of the last lane.
    int64_t first_multiple = int64_t{1} << 40, last_multiple = int64_t{1} << 40;
    int lanes = 1;
    bool distinct = false;           // no two lanes alias
    llvm::Value* pointer = nullptr;  // of lane 0, without `vector`

    std::optional<int64_t> constant_stride() const;  // absent: not a constant
  };
  // The state of one LLVM function: the kernel's, or an outlined parallel body's.
  struct Frame {
    llvm::Function* function = nullptr;
    llvm::Instruction* entry_end = nullptr;  // insertion point of allocas and invariant loads
    llvm::Value* context = nullptr;          // the LaunchContext
    std::unordered_map<int64_t, Bound> vars;
    std::unordered_map<int64_t, Memory> memory;
    int64_t stack_bytes = 0;  // of its buffers on the stack
    bool outlined = false;
    bool streamed = false;  // used a streaming store: fence before returning
  };
  struct Captures;
  // An innermost loop being emitted: its variable, and strength-reduced multiples of it, by factor.
  struct Stepping {
    std::vector<std::pair<int64_t, llvm::PHINode*>> multiples;
  };

  // emit_kernel.cpp: functions, parameters, outlining
  void declare_scopes(const ir::Kernel& kernel);
  llvm::Function* make_function(const std::string& name, llvm::ArrayRef<llvm::Type*> arguments, bool external);
  void finish_function();
  void bind(const ir::Buffer& buffer, llvm::Value* base);
  void bind(const ir::Var& v, llvm::Value* value);
  void parallel(const ir::For& loop);
  Captures captures(const ir::For& loop) const;
  llvm::Value* as_double(llvm::Value* v);
  llvm::Value* work(const ir::Stmt& s);
  llvm::Function* outline(const ir::For& loop, const Captures& captured, llvm::StructType* env_type,
                          llvm::Value* begin_of_loop);
  llvm::Value* context_field(size_t offset);
  llvm::AllocaInst* entry_alloca(llvm::Type* type, uint64_t count, llvm::Align align, const char* name);

  // emit_stmt.cpp
  void statement(const ir::Stmt& s);
  void emit(const ir::For& n);
  void emit(const ir::Block& n);
  void emit(const ir::Let& n);
  void emit(const ir::Store& n);
  void emit(const ir::Accumulate& n);
  void emit(const ir::If& n);
  void emit(const ir::Alloc& n);
  void emit(const ir::Check& n);
  void emit(const ir::Evaluate& n);
  void emit(const ir::Reduce& n);
  void emit(const ir::Barrier& n);
  void counted_loop(llvm::Value* begin, llvm::Value* end, llvm::Value* runs, bool innermost, const llvm::Twine& name,
                    const std::function<void(llvm::Value*)>& body);
  void when(llvm::Value* condition, const std::function<void()>& then_case, const std::function<void()>& else_case = {},
            bool likely = false);
  void failed_check(const ir::Check& n, llvm::Value* condition);

  // emit_memory.cpp, emit_lanes.cpp: loads, stores, accumulates
  std::optional<Affine> affine(const ir::Expr& e);
  bool distinct_lanes(const ir::Expr& e) const;
  Address address(const ir::Buffer& buffer, const std::vector<ir::Expr>& index, int lanes);
  int64_t lane_multiple(const ir::Expr& index, int lane) const;
  llvm::Align alignment(const Address& a, bool last_lane = false);
  llvm::Instruction* scoped(llvm::Instruction* access, const ir::BufferNode& buffer);
  llvm::Value* lane_pointer(const Address& a, int lane);
  llvm::Value* lane_pointers(const Address& a);
  llvm::Value* to_memory(llvm::Value* v, DType dtype);
  llvm::Value* from_memory(llvm::Value* v, DType dtype);
  llvm::Value* load_at(const Address& a, llvm::Value* pointer, llvm::Type* type, llvm::Align align);
  void store_at(const Address& a, llvm::Value* pointer, llvm::Value* v, llvm::Align align);
  llvm::Value* load(const ir::Load& n, Type type);
  llvm::Value* load_vector(const Address& a, Type type, llvm::Value* mask, llvm::Value* otherwise);
  void store_vector(const Address& a, llvm::Value* v, llvm::Value* mask, bool streaming);
  bool stream(const Address& a, llvm::Value* v);
  void stream_pieces(const Address& a, llvm::Value* v, int64_t piece);
  bool hardware_mask(const Address& a) const;
  bool hardware_scatter(const Address& a) const;
  llvm::Value* apply(ir::AccumulateOp op, DType dtype, llvm::Value* old, llvm::Value* value, llvm::Value* factor);
  void accumulate_at(const ir::Accumulate& n, const Address& a, llvm::Value* pointer, llvm::Value* value,
                     llvm::Value* factor);
  void accumulate_atomic(const ir::Accumulate& n, llvm::Value* pointer, llvm::Value* value, llvm::Value* factor);
  void accumulate_lanes(const ir::Accumulate& n, const Address& a, llvm::Value* value, llvm::Value* factor,
                        llvm::Value* mask);
  void accumulate_one_place(const ir::Accumulate& n, const Address& a, llvm::Value* value, llvm::Value* factor,
                            llvm::Value* mask);
  // Runs `body(lane, pointer)` for each set lane of the mask, in order, as a loop; `body` reads spilled vectors from
  // their stack slots.
  void masked_lanes(const Address& a, llvm::Value* mask,
                    const std::function<void(llvm::Value* lane, llvm::Value* pointer)>& body);
  llvm::Value* spill(llvm::Value* v);
  llvm::Value* slot_lane(llvm::Value* slot, llvm::Type* element, llvm::Value* lane);

  // emit_expr.cpp
  llvm::Value* value(const ir::Expr& e);
  llvm::Value* emit(const ir::Const& n, Type type);
  llvm::Value* emit(const ir::Var& n, Type type);
  llvm::Value* emit(const ir::Load& n, Type type) { return load(n, type); }
  llvm::Value* emit(const ir::Unary& n, Type type);
  llvm::Value* emit(const ir::Binary& n, Type type);
  llvm::Value* emit(const ir::Fma& n, Type type);
  llvm::Value* emit(const ir::Select& n, Type type);
  llvm::Value* emit(const ir::Cast& n, Type type);
  llvm::Value* emit(const ir::Bitcast& n, Type type);
  llvm::Value* emit(const ir::Ramp& n, Type type);
  llvm::Value* emit(const ir::Broadcast& n, Type type);
  llvm::Value* emit(const ir::Shuffle& n, Type type);
  llvm::Value* emit(const ir::Intrinsic& n, Type type);
  llvm::Value* emit(const ir::Math& n, Type type);
  llvm::Value* lane_mask(const ir::Binary& n);
  llvm::Value* binary(ir::BinaryOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* floor_division(bool modulo, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* fused(llvm::Value* a, llvm::Value* b, llvm::Value* c);
  llvm::Value* all(llvm::Value* condition);
  llvm::Value* any(llvm::Value* condition);

  // emit_convert.cpp: f16 and bf16 are represented as i16
  llvm::Value* convert(llvm::Value* v, DType from, DType to);
  llvm::Value* f16_to_f32(llvm::Value* v);
  llvm::Value* bf16_to_f32(llvm::Value* v);
  llvm::Value* f32_to_f16(llvm::Value* v);
  llvm::Value* f32_to_bf16(llvm::Value* v);
  llvm::Value* to_f32_odd(llvm::Value* v, DType from);
  llvm::Value* to_f64_odd(llvm::Value* v, bool is_signed);

  // types and constants
  llvm::Type* scalar_type(DType t);
  llvm::Type* memory_type(DType t);
  llvm::Type* type_of(Type t);
  llvm::Type* with_lanes_of(llvm::Type* element, llvm::Value* like);
  llvm::Value* splat(llvm::Type* type, uint64_t bits);  // an integer (vector) constant
  llvm::ConstantInt* i64(int64_t v);
  llvm::Value* vector_of(const std::vector<int64_t>& lanes);
  llvm::Value* add(llvm::Value* a, llvm::Value* b);  // null is zero
  llvm::Value* scale(llvm::Value* a, llvm::Value* factor);
  llvm::Value* stepped(llvm::Value* v, int64_t factor);

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  const Isa& isa_;
  Machine machine_;
  llvm::IRBuilder<> builder_;
  Frame* frame_ = nullptr;
  ir::Ranges ranges_;  // at the insertion point: the kernel's scalars, enclosing loops and lets
  std::unordered_map<const ir::ExprNode*, llvm::Value*> memo_;  // expressions of the current statement
  struct Scopes {
    llvm::MDNode* self = nullptr;
    llvm::MDNode* others = nullptr;
  };
  // Alias scopes by buffer id: no two buffers overlap, except inputs, which nothing writes.
  std::unordered_map<int64_t, Scopes> scopes_;
  Stepping* stepping_ = nullptr;  // of the enclosing innermost loop, while it is being emitted
  int outlined_ = 0;
};

}  // namespace gradloom::codegen
