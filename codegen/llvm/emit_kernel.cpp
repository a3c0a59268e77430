// The kernel's function, its parameters, and parallel loops outlined to functions that the launcher's threads call.
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>

#include <cstddef>

#include "codegen/llvm/emitter.h"
#include "ir/rewrite.h"

namespace gradloom::codegen {

using llvm::Value;

Emitter::Emitter(llvm::Module& module, const Isa& isa)
    : module_(module), context_(module.getContext()), isa_(isa), machine_(isa), builder_(context_) {}

// Alias scopes: no two buffers alias, except inputs, whose overlap is unobservable as nothing writes them.
void Emitter::declare_scopes(const ir::Kernel& kernel) {
  std::vector<std::pair<int64_t, std::string>> buffers;
  for (const ir::Buffer& b : kernel.buffers) buffers.emplace_back(b->id, b->name);
  ir::walk(kernel.body, [&](const ir::Stmt& s) {
    if (const auto* a = s.as<ir::Alloc>()) buffers.emplace_back(a->buffer->id, a->buffer->name);
  });
  llvm::MDBuilder md(context_);
  llvm::MDNode* domain = md.createAnonymousAliasScopeDomain();
  std::vector<llvm::Metadata*> all;
  for (const auto& [id, name] : buffers) all.push_back(md.createAnonymousAliasScope(domain, name));
  for (size_t i = 0; i < buffers.size(); ++i) {
    std::vector<llvm::Metadata*> others;
    for (size_t j = 0; j < all.size(); ++j)
      if (j != i) others.push_back(all[j]);
    scopes_[buffers[i].first] = {llvm::MDNode::get(context_, all[i]),
                                 others.empty() ? nullptr : llvm::MDNode::get(context_, others)};
  }
}

llvm::Function* Emitter::make_function(const std::string& name, llvm::ArrayRef<llvm::Type*> arguments, bool external) {
  auto* type = llvm::FunctionType::get(builder_.getVoidTy(), arguments, false);
  auto* f = llvm::Function::Create(type, external ? llvm::Function::ExternalLinkage : llvm::Function::InternalLinkage,
                                   name, module_);
  f->addFnAttr(llvm::Attribute::NoUnwind);
  f->addFnAttr("target-cpu", isa_.cpu);
  f->addFnAttr("target-features", isa_.features);
  f->addFnAttr("prefer-vector-width", std::to_string(machine_.vector_bytes * 8));
  return f;
}

// Creates the function's blocks: an entry for allocas and invariant loads, and the body.
static llvm::Instruction* open_function(llvm::IRBuilder<>& builder, llvm::Function* f) {
  llvm::BasicBlock* entry = llvm::BasicBlock::Create(f->getContext(), "entry", f);
  llvm::BasicBlock* body = llvm::BasicBlock::Create(f->getContext(), "body", f);
  llvm::Instruction* end = llvm::BranchInst::Create(body, entry);
  builder.SetInsertPoint(end);
  return end;
}

void Emitter::finish_function() {
  if (frame_->streamed)
    builder_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, llvm::ArrayRef<llvm::Type*>(),
                             llvm::ArrayRef<Value*>());  // other threads read streamed data
  builder_.CreateRetVoid();
}

llvm::AllocaInst* Emitter::entry_alloca(llvm::Type* type, uint64_t count, llvm::Align align, const char* name) {
  llvm::Type* array = count == 1 ? type : llvm::ArrayType::get(type, count);
  auto* a = new llvm::AllocaInst(array, 0, nullptr, align, name, frame_->entry_end->getIterator());
  return a;
}

Value* Emitter::context_field(size_t offset) {
  return builder_.CreateGEP(builder_.getInt8Ty(), frame_->context, i64(static_cast<int64_t>(offset)));
}

void Emitter::bind(const ir::Var& v, Value* value) {
  frame_->vars[v.id] =
      Bound{value, v.type == Type{} ? std::optional<Affine>(Affine{value, 0, nullptr}) : std::nullopt, false};
}

// A parameter has the buffer's declared alignment; stack and launcher memory is 64-byte aligned.
void Emitter::bind(const ir::Buffer& buffer, Value* base) {
  Memory memory{base, {}, buffer->role == ir::Role::temp ? uint64_t{64} : static_cast<uint64_t>(buffer->alignment)};
  memory.strides.resize(buffer->dims.size());
  Value* dense = i64(1);
  for (size_t d = buffer->dims.size(); d-- > 0;) {
    memory.strides[d] = buffer->strides.empty() ? dense : value(buffer->strides[d]);
    if (buffer->strides.empty() && d > 0) dense = builder_.CreateMul(dense, value(buffer->dims[d]));
  }
  frame_->memory[buffer->id] = std::move(memory);
}

void Emitter::kernel(const ir::Kernel& kernel, const std::string& symbol) {
  declare_scopes(kernel);
  ranges_ = ir::Ranges(kernel);
  llvm::Type* pointer = builder_.getPtrTy();
  Frame frame;
  frame_ = &frame;
  frame.function = make_function(symbol, {pointer, pointer, pointer}, true);
  frame.entry_end = open_function(builder_, frame.function);
  frame.context = frame.function->getArg(0);
  for (size_t i = 0; i < kernel.scalars.size(); ++i) {
    const ir::Var& v = kernel.scalars[i].var;
    Value* slot = builder_.CreateGEP(builder_.getInt64Ty(), frame.function->getArg(2), i64(static_cast<int64_t>(i)));
    bind(v, from_memory(builder_.CreateAlignedLoad(memory_type(v.type.dtype), slot, llvm::Align(8), v.name),
                        v.type.dtype));
  }
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    Value* slot = builder_.CreateGEP(pointer, frame.function->getArg(1), i64(static_cast<int64_t>(i)));
    bind(kernel.buffers[i], builder_.CreateAlignedLoad(pointer, slot, llvm::Align(8), kernel.buffers[i]->name));
  }
  builder_.SetInsertPoint(frame.entry_end->getSuccessor(0));
  statement(kernel.body);
  finish_function();
  frame_ = nullptr;
}

// The values of the enclosing function that a parallel body captures.
struct Emitter::Captures {
  std::vector<int64_t> vars, buffers;
};

Emitter::Captures Emitter::captures(const ir::For& loop) const {
  Captures found;
  const auto note = [](std::vector<int64_t>& list, const auto& known, int64_t id) {
    if (known.count(id) && std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
  };
  const auto buffer = [&](const ir::Buffer& b) { note(found.buffers, frame_->memory, b->id); };
  const auto expr = [&](const ir::Expr& e) {
    if (const auto* n = e.as<ir::Var>()) note(found.vars, frame_->vars, n->id);
    if (const auto* n = e.as<ir::Load>()) buffer(n->buffer);
    if (const auto* n = e.as<ir::Intrinsic>(); n && n->buffer) buffer(n->buffer);
  };
  ir::walk(
      loop.body,
      [&](const ir::Stmt& s) {
        if (const auto* n = s.as<ir::Store>()) buffer(n->buffer);
        if (const auto* n = s.as<ir::Accumulate>()) buffer(n->buffer);
      },
      expr);
  return found;
}

namespace {
constexpr int64_t worth_waking = 128 << 10;  // lanes of expression nodes: some microseconds

int64_t nodes_of(const ir::Stmt& s) {
  int64_t nodes = 0;
  int lanes = 1;
  const auto count = [&](const ir::Expr& e) { ++nodes, lanes = std::max(lanes, e.lanes()); };
  ir::walk(
      s, [](const ir::Stmt&) {}, count);
  return nodes * lanes;
}
}  // namespace

Value* Emitter::as_double(Value* v) { return builder_.CreateSIToFP(v, builder_.getDoubleTy()); }

// What one run of the statement takes, in lanes of expression nodes, as a double; null where the trip count of a loop
// in it is not known here. Values are those of the statement's surroundings.
Value* Emitter::work(const ir::Stmt& s) {
  const auto sum = [&](Value* a, Value* b) { return a && b ? builder_.CreateFAdd(a, b) : nullptr; };
  Value* none = as_double(i64(0));
  if (!s) return none;
  if (const auto* n = s.as<ir::For>()) {
    const bool known = !ir::has_variable_divisor(n->extent) && !ir::any_of(n->extent, [&](const ir::Expr& e) {
      const auto* v = e.as<ir::Var>();
      return e.as<ir::Load>() || (v && !frame_->vars.contains(v->id));
    });
    Value* body = known ? work(n->body) : nullptr;
    return body ? builder_.CreateFMul(as_double(value(n->extent)), body) : nullptr;
  }
  if (const auto* n = s.as<ir::Block>()) {
    Value* all = none;
    for (const ir::Stmt& part : n->stmts) all = sum(all, all ? work(part) : nullptr);
    return all;
  }
  if (const auto* n = s.as<ir::Let>()) return work(n->body);
  if (const auto* n = s.as<ir::Alloc>()) return work(n->body);
  if (const auto* n = s.as<ir::Check>()) return work(n->body);
  if (const auto* n = s.as<ir::If>()) return sum(work(n->then_case), work(n->else_case));
  return as_double(i64(nodes_of(s)));
}

void Emitter::parallel(const ir::For& loop) {
  const std::optional<int64_t> extent = ir::as_int(loop.extent);
  if (extent && *extent <= 0) return;
  Value* begin = value(loop.begin);
  Value* count = value(loop.extent);
  const ir::Ranges::Scope scope(ranges_, loop);
  const Captures captured = captures(loop);
  // Whether there is enough to do for other threads to be woken; null: yes, or a schedule knew.
  Value* much = nullptr;
  if (Value* each = work(loop.body); each && !(extent && llvm::isa<llvm::Constant>(each)))
    much = builder_.CreateFCmpOGE(builder_.CreateFMul(as_double(count), each), as_double(i64(worth_waking)));
  // The environment: the context, the loop's begin, then every captured value. Constants are used directly instead.
  std::vector<Value*> values{frame_->context, begin};
  for (const int64_t id : captured.vars) values.push_back(frame_->vars[id].value);
  for (const int64_t id : captured.buffers) {
    values.push_back(frame_->memory[id].base);
    for (Value* stride : frame_->memory[id].strides) values.push_back(stride);
  }
  std::vector<Value*> fields;
  std::vector<llvm::Type*> types;
  for (Value* v : values) {
    if (llvm::isa<llvm::Constant>(v)) continue;
    fields.push_back(v);
    types.push_back(v->getType());
  }
  llvm::StructType* env_type = llvm::StructType::get(context_, types);
  llvm::AllocaInst* env = entry_alloca(env_type, 1, llvm::Align(64), "env");
  const auto call = [&] {
    for (size_t i = 0; i < fields.size(); ++i)
      builder_.CreateStore(fields[i], builder_.CreateStructGEP(env_type, env, i));
    llvm::Function* body = outline(loop, captured, env_type, begin);
    llvm::Type* pointer = builder_.getPtrTy();
    auto* type =
        llvm::FunctionType::get(builder_.getVoidTy(), {pointer, builder_.getInt64Ty(), pointer, pointer}, false);
    const auto share = [&] {
      Value* run = builder_.CreateLoad(pointer, context_field(offsetof(LaunchContext, parallel_for)));
      builder_.CreateCall(type, run, {frame_->context, count, body, env})->setDoesNotThrow();
    };
    if (!much) return share();
    when(
        much, share,
        [&] {
          builder_.CreateCall(body, {env, i64(0), count});
        },
        true);
  };
  if (extent)
    call();
  else
    when(builder_.CreateICmpSGT(count, i64(0)), call);
}

// void fn(env, begin, end): iterations [begin, end) of the loop.
llvm::Function* Emitter::outline(const ir::For& loop, const Captures& captured, llvm::StructType* env_type,
                                 Value* begin_of_loop) {
  llvm::Type* pointer = builder_.getPtrTy();
  const auto resume = builder_.saveIP();
  Frame* outer = frame_;
  Frame frame;
  frame.outlined = true;
  frame.function =
      make_function((outer->function->getName() + "." + loop.var.name + "." + std::to_string(outlined_++)).str(),
                    {pointer, builder_.getInt64Ty(), builder_.getInt64Ty()}, false);
  frame.entry_end = open_function(builder_, frame.function);
  unsigned field = 0;
  const auto next = [&](Value* outside) -> Value* {
    if (llvm::isa<llvm::Constant>(outside)) return outside;
    Value* slot = builder_.CreateStructGEP(env_type, frame.function->getArg(0), field);
    return builder_.CreateLoad(env_type->getElementType(field++), slot, outside->getName());
  };
  frame.context = next(outer->context);
  Value* begin = next(begin_of_loop);
  for (const int64_t id : captured.vars) {
    const Bound& bound = outer->vars[id];
    Value* v = next(bound.value);
    frame.vars[id] = Bound{
        v, v->getType()->isIntegerTy(64) ? std::optional<Affine>(Affine{v, 0, nullptr}) : std::nullopt, bound.distinct};
  }
  for (const int64_t id : captured.buffers) {
    Memory memory = outer->memory[id];
    memory.base = next(memory.base);
    for (Value*& stride : memory.strides) stride = next(stride);
    frame.memory[id] = std::move(memory);
  }
  frame_ = &frame;
  builder_.SetInsertPoint(frame.entry_end->getSuccessor(0));
  Value* first = frame.function->getArg(1);
  Value* last = frame.function->getArg(2);
  counted_loop(first, last, builder_.CreateICmpSLT(first, last), false, loop.var.name, [&](Value* i) {
    const auto* zero = llvm::dyn_cast<llvm::ConstantInt>(begin);
    bind(loop.var, zero && zero->isZero() ? i : builder_.CreateAdd(begin, i));
    statement(loop.body);
  });
  finish_function();
  frame_ = outer;
  builder_.restoreIP(resume);
  memo_.clear();
  return frame.function;
}

}  // namespace gradloom::codegen
