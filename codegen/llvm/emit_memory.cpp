// Addresses, loads and stores. An index is split into a scalar part, a constant and a lane stride, so that accesses to
// nearby elements share one address and differ by a displacement, and so that dense, reversed, uniform and strided
// accesses are distinguished from gathers.
#include <functional>

#include "codegen/llvm/emitter.h"

namespace gradloom::codegen {

using llvm::Value;

namespace {

int64_t wrapping_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

int64_t wrapping_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

// a + factor * b; an empty one is zero.
std::vector<int64_t> wrapping_sum(std::vector<int64_t> a, const std::vector<int64_t>& b, int64_t factor) {
  a.resize(std::max(a.size(), b.size()));
  for (size_t i = 0; i < b.size(); ++i) a[i] = wrapping_add(a[i], wrapping_mul(b[i], factor));
  return a;
}

// A lane of constants, such as floor_div(ramp(0, 1, 16), broadcast(8, 16)).
std::optional<int64_t> constant_lane(const ir::Expr& e, int lane) {
  if (const auto* n = e.as<ir::Broadcast>()) return ir::as_int(n->value);
  if (const auto* n = e.as<ir::Ramp>()) {
    const std::optional<int64_t> base = ir::as_int(n->base), stride = ir::as_int(n->stride);
    return base && stride ? std::optional(wrapping_add(*base, wrapping_mul(*stride, lane))) : std::nullopt;
  }
  const auto* n = e.as<ir::Binary>();
  if (!n || (n->op != ir::BinaryOp::floor_div && n->op != ir::BinaryOp::floor_mod)) return std::nullopt;
  const std::optional<int64_t> a = constant_lane(n->a, lane), b = constant_lane(n->b, lane);
  if (!a || !b || *b <= 0) return std::nullopt;
  const int64_t quotient = *a / *b - (*a % *b < 0);
  return n->op == ir::BinaryOp::floor_div ? quotient : *a - quotient * *b;
}

}  // namespace

// Always succeeds for a scalar.
std::optional<Affine> Emitter::affine(const ir::Expr& e) {
  if (const auto constant = ir::as_int(e)) return Affine{nullptr, *constant, nullptr};
  if (const auto* n = e.as<ir::Broadcast>()) return affine(n->value);
  if (const auto* n = e.as<ir::Ramp>()) {
    std::optional<Affine> a = affine(n->base);
    a->stride = value(n->stride);
    return a;
  }
  if (const auto* n = e.as<ir::Var>()) {
    const auto found = frame_->vars.find(n->id);
    if (found != frame_->vars.end() && found->second.affine) return found->second.affine;
  }
  const auto* n = e.as<ir::Binary>();
  if (n && (n->op == ir::BinaryOp::add || n->op == ir::BinaryOp::sub)) {
    const std::optional<Affine> a = affine(n->a), b = a ? affine(n->b) : std::nullopt;
    if (b) {
      const bool sub = n->op == ir::BinaryOp::sub;
      const auto join = [&](Value* x, Value* y) {
        return !y ? x : sub ? (x ? builder_.CreateSub(x, y) : builder_.CreateNeg(y)) : add(x, y);
      };
      const auto constant = wrapping_add(a->constant, wrapping_mul(b->constant, sub ? -1 : 1));
      return Affine{join(a->base, b->base), constant, join(a->stride, b->stride),
                    wrapping_sum(a->offsets, b->offsets, sub ? -1 : 1)};
    }
  } else if (n && n->op == ir::BinaryOp::mul) {
    const auto constant_of = [](const ir::Expr& x) {
      const auto* splat = x.as<ir::Broadcast>();
      return ir::as_int(splat ? splat->value : x);
    };
    const std::optional<int64_t> ca = constant_of(n->a), cb = constant_of(n->b);
    const std::optional<Affine> a = cb ? affine(n->a) : ca ? affine(n->b) : std::nullopt;
    if (a) {
      const int64_t factor = cb ? *cb : *ca;
      return Affine{scale(a->base, i64(factor)), wrapping_mul(a->constant, factor), scale(a->stride, i64(factor)),
                    wrapping_sum({}, a->offsets, factor)};
    }
  }
  if (e.lanes() == 1) return Affine{value(e), 0, nullptr};
  Affine constant;
  for (int lane = 0; lane < e.lanes(); ++lane) {
    const std::optional<int64_t> known = constant_lane(e, lane);
    if (!known) return std::nullopt;
    constant.offsets.push_back(*known);
  }
  return constant;
}

// No two lanes are equal: a ramp of nonzero constant stride, or a load of an injective buffer at distinct indices.
bool Emitter::distinct_lanes(const ir::Expr& e) const {
  if (const auto* n = e.as<ir::Ramp>()) return ir::as_int(n->stride).value_or(0) != 0;
  if (const auto* n = e.as<ir::Load>()) {
    if (!n->buffer->facts.injective || n->guard) return false;
    return std::any_of(n->index.begin(), n->index.end(), [&](const ir::Expr& i) { return distinct_lanes(i); });
  }
  if (const auto* n = e.as<ir::Var>()) {
    const auto found = frame_->vars.find(n->id);
    return found != frame_->vars.end() && found->second.distinct;
  }
  const auto* n = e.as<ir::Binary>();
  if (n && (n->op == ir::BinaryOp::add || n->op == ir::BinaryOp::sub))
    return (distinct_lanes(n->a) && n->b.as<ir::Broadcast>()) || (n->a.as<ir::Broadcast>() && distinct_lanes(n->b));
  return false;
}

Value* Emitter::vector_of(const std::vector<int64_t>& lanes) {
  std::vector<llvm::Constant*> values;
  for (const int64_t lane : lanes) values.push_back(i64(lane));
  return llvm::ConstantVector::get(values);
}

std::optional<int64_t> Emitter::Address::constant_stride() const {
  if (vector) return std::nullopt;
  if (!stride) return 0;
  const auto* c = llvm::dyn_cast<llvm::ConstantInt>(stride);
  return c ? std::optional<int64_t>(c->getSExtValue()) : std::nullopt;
}

Emitter::Address Emitter::address(const ir::Buffer& buffer, const std::vector<ir::Expr>& index, int lanes) {
  const auto found = frame_->memory.find(buffer->id);
  if (found == frame_->memory.end())
    throw Error(ErrorCode::internal, "emit: buffer " + buffer->name + " is used outside its scope");
  const Memory& memory = found->second;
  Address a{.buffer = buffer.get(), .base = memory.base, .base_alignment = memory.alignment, .lanes = lanes};
  std::vector<int64_t> offsets;  // of lanes; those of two dims that were one loop add up to a stride
  for (size_t d = 0; d < index.size(); ++d) {
    Value* stride = memory.strides[d];
    const auto* fixed = llvm::dyn_cast<llvm::ConstantInt>(stride);
    if (index[d].lanes() > 1 && buffer->strides.empty()) a.distinct |= distinct_lanes(index[d]);
    const int64_t of_stride =
        fixed && !fixed->isZero() ? int64_t{1} << std::min(40u, fixed->getValue().countr_zero()) : 1;
    if (!fixed || !fixed->isZero()) {
      a.first_multiple = std::min(a.first_multiple, lane_multiple(index[d], 0) * of_stride);
      a.last_multiple = std::min(a.last_multiple, lane_multiple(index[d], lanes - 1) * of_stride);
    }
    if (const std::optional<Affine> i = affine(index[d])) {
      a.offset = add(a.offset, scale(i->base, stride));
      a.stride = add(a.stride, scale(i->stride, stride));
      if (fixed)
        a.constant = wrapping_add(a.constant, wrapping_mul(i->constant, fixed->getSExtValue()));
      else if (i->constant != 0)
        a.offset = add(a.offset, builder_.CreateMul(i64(i->constant), stride));
      if (!i->offsets.empty() && fixed)
        offsets = wrapping_sum(std::move(offsets), i->offsets, fixed->getSExtValue());
      else if (!i->offsets.empty())
        a.vector = add(a.vector, builder_.CreateMul(vector_of(i->offsets), builder_.CreateVectorSplat(lanes, stride)));
    } else {
      a.vector = add(a.vector, builder_.CreateMul(value(index[d]), builder_.CreateVectorSplat(lanes, stride)));
    }
  }
  if (!offsets.empty()) {
    const int64_t step = wrapping_add(offsets[1], wrapping_mul(offsets[0], -1));
    bool even = true;
    for (size_t i = 2; i < offsets.size(); ++i) even &= wrapping_add(offsets[i - 1], step) == offsets[i];
    if (even) {
      a.constant = wrapping_add(a.constant, offsets[0]);
      if (step != 0) a.stride = add(a.stride, i64(step));
    } else {
      a.vector = add(a.vector, vector_of(offsets));
    }
  }
  if (const std::optional<int64_t> stride = a.constant_stride()) a.distinct |= *stride != 0;
  llvm::Type* element = memory_type(buffer->dtype);
  a.pointer = a.base;
  if (a.offset) a.pointer = builder_.CreateGEP(element, a.pointer, a.offset);
  if (a.constant != 0) a.pointer = builder_.CreateGEP(element, a.pointer, i64(a.constant));
  return a;
}

// The largest power of two (up to 2^20) proved to divide a lane of an index. Analyses the IR rather than LLVM values,
// as an LLVM phi under construction is incomplete.
int64_t Emitter::lane_multiple(const ir::Expr& index, int lane) const {
  constexpr int64_t enough = int64_t{1} << 20;
  if (index.lanes() == 1) return std::min(enough, ir::known_multiple(index, ranges_));
  if (const auto* n = index.as<ir::Broadcast>()) return std::min(enough, ir::known_multiple(n->value, ranges_));
  if (const auto* n = index.as<ir::Ramp>())
    return std::min(enough, ir::known_multiple(lane == 0 ? n->base : n->base + n->stride * lane, ranges_));
  if (const auto* n = index.as<ir::Binary>())
    if (n->op == ir::BinaryOp::add || n->op == ir::BinaryOp::sub)
      return std::min(lane_multiple(n->a, lane), lane_multiple(n->b, lane));
  if (const std::optional<int64_t> known = constant_lane(index, lane))
    return *known == 0 ? enough : std::min(enough, *known & -*known);
  return 1;
}

// The proved alignment of the address of the first lane, or of the last.
llvm::Align Emitter::alignment(const Address& a, bool last_lane) {
  const uint64_t multiple = static_cast<uint64_t>(last_lane ? a.last_multiple : a.first_multiple);
  return llvm::Align(std::min(a.base_alignment, multiple * size_of(a.buffer->dtype)));
}

// Attaches the buffer's alias scopes to an access, and marks loads of inputs as invariant: nothing writes an input
// while a kernel runs.
llvm::Instruction* Emitter::scoped(llvm::Instruction* access, const ir::BufferNode& buffer) {
  if (buffer.role == ir::Role::in && access->mayReadFromMemory())
    access->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(context_, {}));
  const auto found = scopes_.find(buffer.id);
  if (found == scopes_.end()) return access;
  access->setMetadata(llvm::LLVMContext::MD_alias_scope, found->second.self);
  if (found->second.others) access->setMetadata(llvm::LLVMContext::MD_noalias, found->second.others);
  return access;
}

Value* Emitter::to_memory(Value* v, DType dtype) {
  return dtype == DType::boolean ? builder_.CreateZExt(v, with_lanes_of(builder_.getInt8Ty(), v)) : v;
}

Value* Emitter::from_memory(Value* v, DType dtype) {
  return dtype == DType::boolean ? builder_.CreateICmpNE(v, splat(v->getType(), 0)) : v;
}

// `type` is the type in memory; returns the value.
Value* Emitter::load_at(const Address& a, Value* pointer, llvm::Type* type, llvm::Align align) {
  llvm::LoadInst* l = builder_.CreateAlignedLoad(type, pointer, align);
  scoped(l, *a.buffer);
  return from_memory(l, a.buffer->dtype);
}

void Emitter::store_at(const Address& a, Value* pointer, Value* v, llvm::Align align) {
  scoped(builder_.CreateAlignedStore(to_memory(v, a.buffer->dtype), pointer, align), *a.buffer);
}

namespace {
// The value of a constant guard.
std::optional<bool> constant_guard(Value* guard) {
  const auto* c = llvm::dyn_cast<llvm::Constant>(guard);
  if (!c) return std::nullopt;
  if (c->isAllOnesValue()) return true;
  if (c->isNullValue()) return false;
  return std::nullopt;
}
}  // namespace

Value* Emitter::load(const ir::Load& n, Type type) {
  Value* guard = n.guard ? value(n.guard) : nullptr;
  Value* otherwise = n.guard ? value(n.otherwise) : nullptr;
  if (guard) {
    const std::optional<bool> known = constant_guard(guard);
    if (known == false) return otherwise;
    if (known == true) guard = nullptr;
  }
  const Address a = address(n.buffer, n.index, type.lanes);
  llvm::Type* element = memory_type(type.dtype);
  if (type.lanes > 1) return load_vector(a, type, guard, otherwise);
  if (!guard) return load_at(a, a.pointer, element, alignment(a));
  llvm::BasicBlock* from = nullptr;
  Value* loaded = nullptr;
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  when(guard, [&] {
    loaded = load_at(a, a.pointer, element, alignment(a));
    from = builder_.GetInsertBlock();
  });
  llvm::PHINode* phi = builder_.CreatePHI(loaded->getType(), 2);
  phi->addIncoming(loaded, from);
  phi->addIncoming(otherwise, before);
  return phi;
}

void Emitter::emit(const ir::Store& n) {
  Value* guard = n.guard ? value(n.guard) : nullptr;
  if (guard) {
    const std::optional<bool> known = constant_guard(guard);
    if (known == false) return;
    if (known == true) guard = nullptr;
  }
  Value* v = value(n.value);
  const Address a = address(n.buffer, n.index, n.value.lanes());
  if (n.value.lanes() > 1) return store_vector(a, v, guard, n.streaming);
  if (!guard) return store_at(a, a.pointer, v, alignment(a));
  when(guard, [&] { store_at(a, a.pointer, v, alignment(a)); });
}

// Streaming (non-temporal) stores of register-sized pieces, each at an address that is a multiple of its size (an
// underaligned one would become many narrow stores): where that is not proved, by a branch on the address.
bool Emitter::stream(const Address& a, Value* v) {
  const int size = size_of(a.buffer->dtype);
  const int64_t bytes = static_cast<int64_t>(a.lanes) * size,
                widest = std::min(int64_t{machine_.vector_bytes}, bytes & -bytes);  // a power of two, as alignments are
  int64_t piece = std::min(widest, static_cast<int64_t>(alignment(a).value()));
  const bool proved = piece >= 16;
  if (!proved) piece = widest;
  if (!machine_.x86 || piece < 16) return false;
  frame_->streamed = true;
  if (proved) return stream_pieces(a, v, piece), true;
  // The buffer's own address is the same in every iteration.
  const bool by_base = a.first_multiple * size % piece == 0;
  Value* address = builder_.CreatePtrToInt(by_base ? a.base : a.pointer, builder_.getInt64Ty());
  when(
      builder_.CreateICmpEQ(builder_.CreateAnd(address, i64(piece - 1)), i64(0)), [&] { stream_pieces(a, v, piece); },
      [&] { store_at(a, a.pointer, v, alignment(a)); }, true);
  return true;
}

void Emitter::stream_pieces(const Address& a, Value* v, int64_t piece) {
  v = to_memory(v, a.buffer->dtype);
  const int lanes = static_cast<int>(piece / size_of(a.buffer->dtype));
  for (int first = 0; first < a.lanes; first += lanes) {
    Value* part = v;
    if (lanes != a.lanes) {
      std::vector<int> mask(lanes);
      for (int i = 0; i < lanes; ++i) mask[i] = first + i;
      part = builder_.CreateShuffleVector(v, mask);
    }
    Value* pointer = first == 0 ? a.pointer : builder_.CreateGEP(memory_type(a.buffer->dtype), a.pointer, i64(first));
    llvm::StoreInst* s = builder_.CreateAlignedStore(part, pointer, llvm::Align(piece));
    s->setMetadata(llvm::LLVMContext::MD_nontemporal,
                   llvm::MDNode::get(context_, llvm::ConstantAsMetadata::get(builder_.getInt32(1))));
    scoped(s, *a.buffer);
  }
}

}  // namespace gradloom::codegen
