// Statements: loops, conditions, lets, allocations and checks.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <cstddef>
#include <limits>
#include <utility>

#include "codegen/llvm/emitter.h"
#include "ir/rewrite.h"

namespace gradloom::codegen {

using llvm::Value;

namespace {
constexpr int64_t most_stack_bytes = 16 << 10;  // per buffer
constexpr int64_t most_frame_bytes =
    128 << 10;  // per function, all buffers together: a caller's thread may have a small stack
}  // namespace

void Emitter::statement(const ir::Stmt& s) {
  memo_.clear();  // one statement's values may not dominate the next, and loads may change
  std::visit([&](const auto& n) { emit(n); }, s.node().value);
}

// A bottom-tested loop from begin until the variable equals end, perhaps wrapping past the largest integer. Entered
// only if `runs`; always, where that is absent.
void Emitter::counted_loop(Value* begin, Value* end, Value* runs, bool innermost, const llvm::Twine& name,
                           const std::function<void(Value*)>& body) {
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  llvm::BasicBlock* loop = llvm::BasicBlock::Create(context_, name, frame_->function);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(context_, name + ".done");
  if (runs)
    builder_.CreateCondBr(runs, loop, after);
  else
    builder_.CreateBr(loop);
  builder_.SetInsertPoint(loop);
  Stepping steps;
  steps.multiples.push_back({1, builder_.CreatePHI(builder_.getInt64Ty(), 2, name)});
  Stepping* const around = std::exchange(stepping_, innermost ? &steps : nullptr);
  body(steps.multiples[0].second);
  stepping_ = around;
  // Where only multiples of the variable are used, one of them is the loop counter.
  const llvm::PHINode* counter =
      (steps.multiples[0].second->use_empty() ? steps.multiples.back() : steps.multiples[0]).second;
  Value* more = nullptr;
  after->insertInto(frame_->function);
  for (const auto& [factor, i] : steps.multiples) {
    llvm::IRBuilder<> outside(before->getTerminator());
    i->addIncoming(outside.CreateMul(begin, i64(factor)), before);
    Value* next = builder_.CreateAdd(i, i64(factor));
    i->addIncoming(next, builder_.GetInsertBlock());
    if (i == counter) more = builder_.CreateICmpNE(next, outside.CreateMul(end, i64(factor)));
  }
  builder_.CreateCondBr(more, loop, after);
  builder_.SetInsertPoint(after);
}

// Strength reduction: the variable of an innermost loop, or a sum with it, times a constant becomes an induction
// variable that steps by the constant. Null for anything else.
Value* Emitter::stepped(Value* v, int64_t factor) {
  constexpr int64_t addressed = 2;               // folds into the scale of an address
  constexpr int64_t largest = int64_t{1} << 20;  // no loop runs long enough for these to wrap
  if (!stepping_) return nullptr;
  for (const auto& [own, i] : stepping_->multiples) {
    if (v != i) continue;
    const int64_t wanted = own * factor;
    if (factor == 0 || std::abs(factor) > largest || std::abs(wanted) > largest ||
        (own == 1 && std::abs(factor) <= addressed))
      return nullptr;
    for (const auto& [f, other] : stepping_->multiples)
      if (f == wanted) return other;
    for (const auto& [f, other] : stepping_->multiples)
      if (f != 1 && f * addressed == wanted) return builder_.CreateMul(other, i64(addressed));
    llvm::PHINode* phi = llvm::PHINode::Create(builder_.getInt64Ty(), 2, i->getName(), i->getParent()->begin());
    stepping_->multiples.push_back({wanted, phi});
    return phi;
  }
  const auto* sum = llvm::dyn_cast<llvm::BinaryOperator>(v);
  if (!sum || sum->getOpcode() != llvm::Instruction::Add) return nullptr;
  for (const int side : {0, 1})
    if (Value* part = stepped(sum->getOperand(side), factor))
      return builder_.CreateAdd(part, builder_.CreateMul(sum->getOperand(1 - side), i64(factor)));
  return nullptr;
}

void Emitter::when(Value* condition, const std::function<void()>& then_case, const std::function<void()>& else_case,
                   bool likely) {
  llvm::BasicBlock* then_block = llvm::BasicBlock::Create(context_, "then", frame_->function);
  llvm::BasicBlock* else_block = else_case ? llvm::BasicBlock::Create(context_, "else") : nullptr;
  llvm::BasicBlock* after = llvm::BasicBlock::Create(context_, "after");
  builder_.CreateCondBr(condition, then_block, else_block ? else_block : after,
                        likely ? llvm::MDBuilder(context_).createBranchWeights(2000, 1) : nullptr);
  builder_.SetInsertPoint(then_block);
  then_case();
  builder_.CreateBr(after);
  if (else_block) {
    else_block->insertInto(frame_->function);
    builder_.SetInsertPoint(else_block);
    else_case();
    builder_.CreateBr(after);
  }
  after->insertInto(frame_->function);
  builder_.SetInsertPoint(after);
}

void Emitter::emit(const ir::For& n) {
  switch (n.kind) {
    case ir::ForKind::parallel:
      if (!frame_->outlined) return parallel(n);
      break;  // nested in a parallel loop: serial
    case ir::ForKind::serial:
      break;
    case ir::ForKind::vector:
    case ir::ForKind::ordered:
    case ir::ForKind::unroll:
    case ir::ForKind::grid:
    case ir::ForKind::thread:
    case ir::ForKind::warp:
    case ir::ForKind::lane:
    case ir::ForKind::cooperative:
    case ir::ForKind::fragment:
    case ir::ForKind::matrix_unit:
      throw Error(ErrorCode::internal, "emit: a " + std::string(ir::to_string(n.kind)) + " loop in a lowered kernel");
  }
  const std::optional<int64_t> extent = ir::as_int(n.extent);
  if (extent && *extent <= 0) return;
  Value* begin = value(n.begin);
  Value* count = value(n.extent);
  Value* end = builder_.CreateAdd(begin, count);
  Value* runs = extent ? nullptr : builder_.CreateICmpSGT(count, i64(0));
  const ir::Ranges::Scope scope(ranges_, n);
  counted_loop(begin, end, runs, !ir::holds_loop(n.body), n.var.name, [&](Value* i) {
    bind(n.var, i);
    statement(n.body);
  });
}

void Emitter::emit(const ir::Block& n) {
  for (const ir::Stmt& s : n.stmts) statement(s);
}

void Emitter::emit(const ir::Let& n) {
  Bound bound{value(n.value), std::nullopt, n.value.lanes() > 1 && distinct_lanes(n.value)};
  if (n.var.type.dtype == DType::i64) bound.affine = affine(n.value);
  frame_->vars[n.var.id] = bound;
  const ir::Ranges::Scope scope(ranges_, n);
  statement(n.body);
}

void Emitter::emit(const ir::If& n) {
  Value* condition = value(n.condition);
  if (n.else_case)
    when(
        condition, [&] { statement(n.then_case); }, [&] { statement(n.else_case); });
  else
    when(condition, [&] { statement(n.then_case); });
}

void Emitter::emit(const ir::Alloc& n) {
  const ir::Buffer& buffer = n.buffer;
  std::optional<int64_t> elements = 1;  // absent: dims are not constant, or the product overflows
  for (const ir::Expr& dim : buffer->dims) {
    const std::optional<int64_t> d = ir::as_int(dim);
    int64_t product = 0;
    elements = elements && d && !__builtin_mul_overflow(*elements, std::max<int64_t>(*d, 0), &product)
                   ? std::optional(product)
                   : std::nullopt;
  }
  const int64_t size = size_of(buffer->dtype);
  const bool small =
      elements && *elements <= most_stack_bytes / size && frame_->stack_bytes + *elements * size <= most_frame_bytes;
  if (elements && (buffer->space == ir::Space::registers || small)) {
    frame_->stack_bytes += *elements * size;
    bind(buffer, entry_alloca(memory_type(buffer->dtype), static_cast<uint64_t>(std::max<int64_t>(*elements, 1)),
                              llvm::Align(64), buffer->name.c_str()));
    statement(n.body);
    return;
  }
  // An overflowing product saturates to the largest number, which the allocator refuses.
  Value *bytes = i64(size), *wraps = builder_.getFalse();
  for (const ir::Expr& dim : buffer->dims) {
    Value* product = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smul_with_overflow, bytes, value(dim));
    bytes = builder_.CreateExtractValue(product, 0);
    wraps = builder_.CreateOr(wraps, builder_.CreateExtractValue(product, 1));
  }
  bytes = builder_.CreateSelect(wraps, i64(std::numeric_limits<int64_t>::max()), bytes);
  llvm::Type* pointer = builder_.getPtrTy();
  auto* acquire_type = llvm::FunctionType::get(pointer, {pointer, builder_.getInt64Ty()}, false);
  auto* release_type = llvm::FunctionType::get(builder_.getVoidTy(), {pointer, pointer, builder_.getInt64Ty()}, false);
  Value* acquire = builder_.CreateLoad(pointer, context_field(offsetof(LaunchContext, acquire_scratch)));
  llvm::CallInst* data = builder_.CreateCall(acquire_type, acquire, {frame_->context, bytes}, buffer->name);
  data->setDoesNotThrow();
  when(
      builder_.CreateICmpNE(data, llvm::ConstantPointerNull::get(builder_.getPtrTy())),
      [&] {
        bind(buffer, data);
        statement(n.body);
        Value* release = builder_.CreateLoad(pointer, context_field(offsetof(LaunchContext, release_scratch)));
        builder_.CreateCall(release_type, release, {frame_->context, data, bytes})->setDoesNotThrow();
      },
      [&] {  // any thread may get here: all store the same value
        builder_.CreateAlignedStore(i64(1), context_field(offsetof(LaunchContext, out_of_scratch)), llvm::Align(8))
            ->setAtomic(llvm::AtomicOrdering::Monotonic);
      },
      true);
}

// Lowers bad_position to the smallest position among the failing lanes.
void Emitter::failed_check(const ir::Check& n, Value* condition) {
  const int lanes = n.condition.lanes();
  Value* position = nullptr;
  if (lanes == 1) {
    position = value(n.position);
  } else {
    const std::optional<Affine> a = affine(n.position);
    const auto* stride = a && a->stride ? llvm::dyn_cast<llvm::ConstantInt>(a->stride) : nullptr;
    // The first failing lane's position is the smallest.
    if (a && a->offsets.empty() && (!a->stride || (stride && !stride->isNegative()))) {
      Value* failing = builder_.CreateBitCast(builder_.CreateNot(condition), builder_.getIntNTy(lanes));
      Value* lane = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, failing, builder_.getTrue());
      lane = builder_.CreateZExtOrTrunc(lane, builder_.getInt64Ty());
      position = add(a->base, i64(a->constant));
      if (a->stride) position = builder_.CreateAdd(position, builder_.CreateMul(lane, a->stride));
    } else {
      Value* positions = value(n.position);
      Value* none = builder_.CreateVectorSplat(lanes, i64(std::numeric_limits<int64_t>::max()));
      position = builder_.CreateIntMinReduce(builder_.CreateSelect(condition, none, positions), true);
    }
  }
  position = builder_.CreateBinaryIntrinsic(
      llvm::Intrinsic::smin, position,
      i64(std::numeric_limits<int64_t>::max() - 1));  // INT64_MAX stands for "no failure"
  builder_.CreateAtomicRMW(llvm::AtomicRMWInst::Min, context_field(offsetof(LaunchContext, bad_position)), position,
                           llvm::Align(8), llvm::AtomicOrdering::Monotonic);
}

void Emitter::emit(const ir::Check& n) {
  Value* condition = value(n.condition);
  when(
      all(condition), [&] { statement(n.body); },
      [&] {
        memo_.clear();  // the body's values do not dominate this
        failed_check(n, condition);
      },
      true);
}

void Emitter::emit(const ir::Evaluate& n) { value(n.value); }
void Emitter::emit(const ir::Reduce&) { throw Error(ErrorCode::internal, "emit: a reduction in a lowered kernel"); }

void Emitter::emit(const ir::Barrier&) { throw Error(ErrorCode::internal, "emit: a barrier in a kernel for a CPU"); }

}  // namespace gradloom::codegen
