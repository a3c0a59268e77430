// Loads, stores and accumulates: element addresses, and vector accesses to adjacent elements.
#include <fmt/format.h>

#include "codegen/cuda/emitter.h"
#include "gradloom/refusal.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::codegen {
namespace {

// The buffer's strides, or dense row-major strides where it has none.
std::vector<ir::Expr> strides_of(const ir::Buffer& b) {
  if (!b->strides.empty() || b->dims.empty()) return b->strides;
  std::vector<ir::Expr> strides(b->dims.size());
  ir::Expr stride = 1;
  for (size_t d = b->dims.size(); d-- > 0;) strides[d] = stride, stride = ir::index_mul(stride, b->dims[d]);
  return strides;
}

constexpr int most_bytes = 16;  // per vector access

// The guard is uniform across lanes, and the address contains no loads.
bool may_guard_together(const ir::Load& n) {
  return n.guard.as<ir::Broadcast>() && std::none_of(n.index.begin(), n.index.end(), ir::has_load);
}

}  // namespace

const FunctionEmitter::Place& FunctionEmitter::place(const ir::Buffer& b) {
  if (const auto found = places_.find(b->id); found != places_.end()) return found->second;
  // A parameter of the kernel, or scratch allocated by the host part.
  const auto parameter = host_.buffers.find(b->id);
  const bool scratch = parameter == host_.buffers.end();
  const std::string name = fresh(b->name);
  // Through __restrict__ the compiler would move accesses of exchanged buffers across barriers.
  const char* alone = exchanged_.contains(b->id) ? "" : "__restrict__ ";
  parameters_.push_back(
      fmt::format("{}{}* {}{}", b->role == ir::Role::in ? "const " : "", memory_type(b->dtype), alone, name));
  function_.arguments.push_back(
      {scratch ? CudaArgument::scratch : CudaArgument::buffer, scratch ? host_.scratch.at(b->id) : parameter->second});
  return places_[b->id] = {.name = name};
}

ir::Expr FunctionEmitter::offset(const ir::Buffer& b, const std::vector<ir::Expr>& index) const {
  const std::vector<ir::Expr> strides = strides_of(b);
  ir::Expr sum = 0;
  // Mixes vector and scalar indices: index_math broadcasts.
  for (size_t d = holds_a_part(b) ? 1 : 0; d < index.size(); ++d)
    sum = ir::index_add(sum, ir::index_mul(index[d], strides[d]));
  return sum;
}

std::optional<int64_t> FunctionEmitter::constant_offset(const ir::Buffer& b, const std::vector<ir::Expr>& index,
                                                        int lane) const {
  const ir::Expr at = offset(b, index);
  const auto* ramp = at.as<ir::Ramp>();
  if (!ramp) return ir::as_int(at);
  const std::optional<int64_t> base = ir::as_int(ramp->base), step = ir::as_int(ramp->stride);
  int64_t way = 0, at_lane = 0;
  if (!base || !step || __builtin_mul_overflow(*step, lane, &way) || __builtin_add_overflow(*base, way, &at_lane))
    return std::nullopt;
  return at_lane;
}

std::vector<std::string> FunctionEmitter::variables_of(const ir::Buffer& b, int64_t elements, const std::string& name,
                                                       const ir::Stmt& body) {
  constexpr int64_t most = 256, in_a_line = 8;
  bool constant = elements <= most;
  const auto look = [&](const ir::Buffer& of, const std::vector<ir::Expr>& index, int lanes) {
    if (!of.same_as(b)) return;
    for (const int lane : {0, lanes - 1}) {
      const std::optional<int64_t> at = constant_offset(b, index, lane);
      constant &= at && *at >= 0 && *at < elements;
    }
  };
  ir::walk(
      body,
      [&](const ir::Stmt& s) {
        if (const auto* n = s.as<ir::Store>()) look(n->buffer, n->index, n->value.lanes());
        if (const auto* n = s.as<ir::Accumulate>()) look(n->buffer, n->index, n->value.lanes());
      },
      [&](const ir::Expr& e) {
        if (const auto* n = e.as<ir::Load>()) look(n->buffer, n->index, e.lanes());
      });
  std::vector<std::string> variables;
  if (!constant) return variables;
  std::string list;
  for (int64_t i = 0; i < elements; ++i) {
    variables.push_back(fresh(fmt::format("{}_{}", name, i)));
    list += (list.empty() ? "" : ", ") + variables.back();
    if ((i + 1) % in_a_line != 0 && i + 1 < elements) continue;
    line(fmt::format("{} {};", memory_type(b->dtype), list));
    list.clear();
  }
  return variables;
}

std::vector<std::string> FunctionEmitter::elements(const ir::Buffer& b, const std::vector<ir::Expr>& index, int lanes) {
  const std::vector<std::string>& variables = place(b).variables;
  std::vector<std::string> out;
  if (!variables.empty()) {
    for (int i = 0; i < lanes; ++i) out.push_back(variables[static_cast<size_t>(*constant_offset(b, index, i))]);
    return out;
  }
  const std::string name = place(b).name;
  if (b->space == ir::Space::per_warp)
    return {fmt::format("{}[{} * 2]", name, element_), fmt::format("{}[{} * 2 + 1]", name, element_)};
  const ir::Expr place_in = offset(b, index);
  Text at = value(place_in);
  if (lanes > 1 && ir::reads(place_in, b))
    at = bound(at, DType::i64, "at", true);  // before a store changes what later addresses load
  for (int i = 0; i < lanes; ++i)
    out.push_back(fmt::format("{}[{}]", name, at.lanes[at.lanes.size() == 1 ? 0 : static_cast<size_t>(i)]));
  return out;
}

std::optional<std::string> FunctionEmitter::neighbours(const ir::Buffer& b, const std::vector<ir::Expr>& index,
                                                       int lanes) {
  const int64_t size = size_of(b->dtype), bytes = size * lanes;
  if (lanes == 1 || bytes > most_bytes || (bytes & (bytes - 1)) != 0 || b->space == ir::Space::registers ||
      place(b).own)
    return std::nullopt;
  const ir::Expr at = offset(b, index);
  const ir::Ramp* ramp = at.as<ir::Ramp>();
  if (!ramp || ir::as_int(ramp->stride) != 1) return std::nullopt;
  const int64_t alignment = b->role == ir::Role::temp ? 16 : b->alignment;
  if (alignment < bytes || ir::known_multiple(ramp->base, ranges_) % lanes != 0) return std::nullopt;
  return fmt::format("{} + {}", place(b).name, parenthesised(scalar(ramp->base)));
}

Text FunctionEmitter::node(const ir::Load& n, Type type, const ir::Expr&) {
  Text out;
  const bool boolean = type.dtype == DType::boolean;
  if (!n.guard || may_guard_together(n))
    if (const auto at = neighbours(n.buffer, n.index, type.lanes)) {
      const std::string name = fresh(n.buffer->name + "_v"),
                        vector = fmt::format("gl_vector<{}, {}>", memory_type(type.dtype), type.lanes);
      if (n.guard) {
        const std::string on = value(n.guard).lanes[0];
        const Text otherwise = n.otherwise ? value(n.otherwise) : Text{};
        std::string list;
        for (int i = 0; i < type.lanes; ++i) {
          const std::string other =
              n.otherwise ? otherwise.lanes[otherwise.lanes.size() == 1 ? 0 : static_cast<size_t>(i)] : "0";
          list += fmt::format("{}({}){}", i ? ", " : "", memory_type(type.dtype), parenthesised(other));
        }
        line(fmt::format("{} {} = {{{{{}}}}};", vector, name, list));
        line(fmt::format("if ({}) {} = *(const {}*)({});", on, name, vector, *at));
      } else {
        line(fmt::format("const {0} {1} = *(const {0}*)({2});", vector, name, *at));
      }
      for (int i = 0; i < type.lanes; ++i)
        out.lanes.push_back(fmt::format("{}.lane[{}]{}", name, i, boolean ? " != 0" : ""));
      out.atom = !boolean;
      return out;
    }
  const std::vector<std::string> places = elements(n.buffer, n.index, type.lanes);
  const Text guard = n.guard ? value(n.guard) : Text{}, otherwise = n.otherwise ? value(n.otherwise) : Text{};
  for (size_t i = 0; i < places.size(); ++i) {
    std::string text = boolean ? places[i] + " != 0" : places[i];
    if (n.guard) {
      const std::string& on = guard.lanes[guard.lanes.size() == 1 ? 0 : i];
      std::string other = n.otherwise ? otherwise.lanes[otherwise.lanes.size() == 1 ? 0 : i] : std::string("0");
      text = fmt::format("({} ? {} : ({}){})", parenthesised(on), parenthesised(text), c_type(type.dtype),
                         parenthesised(other));
    }
    out.lanes.push_back(text);
  }
  return out;
}

bool FunctionEmitter::note(const ir::StmtNode* self, const std::string& guard, const std::string& place,
                           const std::string& v, const std::string& factor) {
  for (const Deferred& d : deferred_) {
    if (d.node != self) continue;
    open(guard.empty() ? "" : fmt::format("if ({}) ", guard));
    line(fmt::format("{} = true;", d.on));
    line(fmt::format("{} = &{};", d.place, place));
    line(fmt::format("{} = {};", d.value, v));
    if (!factor.empty()) line(fmt::format("{} = {};", d.factor, factor));
    close();
    return true;
  }
  return false;
}

Text FunctionEmitter::written(const ir::Buffer& b, const ir::Expr& v, const char* hint) {
  if (v.lanes() == 1 && part_ == Part::thread && deferred_.empty()) return value(v);
  // Lanes are stored one after another, but all must read the memory as it is before the first store: copies it.
  return bound(value(v), b->dtype, hint, ir::reads(v, b));
}

void FunctionEmitter::emit(const ir::Store& n, const ir::StmtNode* self) {
  if (part_ == Part::block) place(n.buffer);  // its parameter precedes those of the operands
  begin({n.value, n.guard});
  for (const ir::Expr& i : n.index) count_uses(i);
  const int lanes = n.value.lanes();
  const Text v = written(n.buffer, n.value, "v");
  const Text guard = n.guard ? bound(value(n.guard), DType::boolean, "on") : Text{};
  const bool boolean = n.buffer->dtype == DType::boolean;
  const auto guard_of = [&](size_t i) {
    return n.guard ? guard.lanes[guard.lanes.size() == 1 ? 0 : i] : std::string();
  };
  const auto stored = [&](size_t i) {
    return boolean ? fmt::format("(unsigned char){}", parenthesised(v.lanes[i])) : v.lanes[i];
  };
  if (const auto at = n.guard ? std::nullopt : neighbours(n.buffer, n.index, lanes)) {
    std::string list;
    for (size_t i = 0; i < v.lanes.size(); ++i) list += (i ? ", " : "") + stored(i);
    const std::string vector = fmt::format("gl_vector<{}, {}>", memory_type(n.buffer->dtype), lanes);
    once(n.buffer, [&] { line(fmt::format("*({}*)({}) = {}{{{{{}}}}};", vector, *at, vector, list)); });
    return;
  }
  const std::vector<std::string> places = elements(n.buffer, n.index, lanes);
  if (note(self, guard_of(0), places[0], stored(0), "")) return;
  once(n.buffer, [&] {
    for (size_t i = 0; i < places.size(); ++i)
      line(fmt::format("{}{} = {};", n.guard ? fmt::format("if ({}) ", guard_of(i)) : "", places[i], stored(i)));
  });
}

std::string FunctionEmitter::updated(const ir::Accumulate& n, const std::string& element, const std::string& v,
                                     const std::string& factor) const {
  const DType t = n.buffer->dtype;
  switch (n.op) {
    case ir::AccumulateOp::add:
      return is_float(t) ? fmt::format("{0} = {0} + {1};", element, parenthesised(v))
                         : fmt::format("{0} = gl_add<{1}>({0}, {2});", element, c_type(t), v);
    case ir::AccumulateOp::mul:
      return is_float(t) ? fmt::format("{0} = {0} * {1};", element, parenthesised(v))
                         : fmt::format("{0} = gl_mul<{1}>({0}, {2});", element, c_type(t), v);
    case ir::AccumulateOp::min:
      return fmt::format("{0} = gl_min{3}({0}, {2});", element, c_type(t), v,
                         is_float(t) ? std::string() : fmt::format("<{}>", c_type(t)));
    case ir::AccumulateOp::max:
      return fmt::format("{0} = gl_max{3}({0}, {2});", element, c_type(t), v,
                         is_float(t) ? std::string() : fmt::format("<{}>", c_type(t)));
    case ir::AccumulateOp::fma:
      if (is_float(t)) return fmt::format("{0} = gl_fma({1}, {2}, {0});", element, v, factor);
      return fmt::format("{0} = gl_add<{3}>({0}, gl_mul<{3}>({1}, {2}));", element, v, factor, c_type(t));
  }
  throw Error(ErrorCode::internal, "emit_cuda: an unknown accumulate");
}

void FunctionEmitter::emit(const ir::Accumulate& n, const ir::StmtNode* self) {
  if (part_ == Part::block) place(n.buffer);  // its parameter precedes those of the operands
  begin({n.value, n.factor, n.guard});
  for (const ir::Expr& i : n.index) count_uses(i);
  const DType dtype = n.buffer->dtype;
  const Text v = written(n.buffer, n.value, "v"), f = n.factor ? written(n.buffer, n.factor, "factor") : Text{};
  const Text guard = n.guard ? bound(value(n.guard), DType::boolean, "on") : Text{};
  const auto guard_of = [&](size_t i) {
    return n.guard ? guard.lanes[guard.lanes.size() == 1 ? 0 : i] : std::string();
  };
  const std::vector<std::string> places = elements(n.buffer, n.index, n.value.lanes());
  if (note(self, guard_of(0), places[0], v.lanes[0], n.factor ? f.lanes[0] : "")) return;
  const bool atomic = n.atomic && !place(n.buffer).own;  // a thread's own memory is private
  if (atomic && (n.op != ir::AccumulateOp::add || dtype == DType::boolean || size_of(dtype) < 4))
    throw ir::LoweringRefusal(
        ErrorCode::unsupported,
        fmt::format("CUDA: an atomic accumulate adds to a number of 32 or 64 bits, got {} to {} {}", to_string(n.op),
                    to_string(dtype), n.buffer->name));
  once(n.buffer, [&] {
    for (size_t i = 0; i < places.size(); ++i) {
      const std::string text =
          atomic ? fmt::format("gl_atomic_add(&{}, ({}){});", places[i], c_type(dtype), parenthesised(v.lanes[i]))
                 : updated(n, places[i], v.lanes[i], n.factor ? f.lanes[i] : "");
      line(n.guard ? fmt::format("if ({}) {{ {} }}", guard_of(i), text) : text);
    }
  });
}

}  // namespace gradloom::codegen
