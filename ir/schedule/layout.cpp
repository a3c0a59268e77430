// The step layout: the order and the lengths of the dims of an allocated buffer.
#include <algorithm>

#include "gradloom/schedule.h"
#include "ir/redirect.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {
namespace {

// The site of a loop below the buffer's allocation, cut off there; without a loop where there is none.
Site at_allocation(const Kernel& kernel, const Buffer& buffer) {
  for (const For* f : loops_below(kernel.body)) {
    Site site = find_loop(kernel, f->var.id);
    for (size_t i = 0; i < site.path.size(); ++i)
      if (const Alloc* a = site.path[i].as<Alloc>(); a && a->buffer.same_as(buffer)) {
        site.path.resize(i + 1);
        return site;
      }
  }
  return {};
}

template <class T>
std::string joined(const std::vector<T>& list) {
  std::string text;
  for (const T& x : list) text += (text.empty() ? "" : ";") + std::to_string(x);
  return text;
}

}  // namespace

// Legal because an allocated buffer is known by its indices alone.
Buffer Schedule::layout(const Buffer& buffer, const std::vector<int>& order, const std::vector<int64_t>& dims) {
  const std::string line =
      "layout " + handle_name(kernel_, buffer) + " " + joined(order) + (dims.empty() ? "" : " " + joined(dims));
  const size_t rank = buffer->dims.size();
  const auto wrong = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, "layout of buffer " + buffer->name + ": " + why);
  };
  const auto fail = [&](const std::string& why) {
    throw ScheduleRefusal("layout of buffer " + buffer->name + ": " + why);
  };
  std::vector<int> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t d = 0; d < std::max(sorted.size(), rank); ++d)
    if (sorted.size() != rank || sorted[d] != static_cast<int>(d)) wrong("the order is not one of its dims");
  if (!dims.empty() && dims.size() != rank) wrong("the lengths are not of its " + std::to_string(rank) + " dims");
  if (buffer->role != Role::temp) fail("it is not allocated here");
  if (rank == 0) fail("it has no dims");
  const Site site = at_allocation(kernel_, buffer);
  if (!site.loop) fail("no loop uses it");
  BufferNode node = *buffer;
  node.id = 0;
  for (size_t d = 0; d < rank; ++d) {
    const size_t from = static_cast<size_t>(order[d]);
    node.dims[d] = buffer->dims[from];
    if (dims.empty() || dims[d] == 0) continue;
    const std::optional<int64_t> length = as_int(node.dims[d]);
    if (!length) fail("the length of its dim " + std::to_string(from) + " is not a constant");
    if (dims[d] < *length) wrong("dim " + std::to_string(from) + " is " + std::to_string(*length) + " long");
    node.dims[d] = dims[d];
  }
  if (!buffer->strides.empty()) fail("it has strides");
  if (buffer->space != Space::global) fail("it is in another space");
  const Stmt& body = site.path.back().as<Alloc>()->body;
  if (any_of(body, [&](const Expr& e) { return e.as<Intrinsic>() && e.as<Intrinsic>()->buffer.same_as(buffer); }))
    fail("it is prefetched");
  for (const BufferAccess& a : accesses(body, buffer))
    if (std::any_of(a.index.begin(), a.index.end(), [](const Expr& i) { return i.lanes() > 1; }))
      fail("it is accessed by vectors");
  node.facts.nondecreasing = node.facts.injective = false;
  const Buffer to = make_buffer(std::move(node));
  const auto place = [&](const std::vector<Expr>& index) {
    std::vector<Expr> moved;
    for (const int d : order) moved.push_back(index[static_cast<size_t>(d)]);
    return moved;
  };
  put("layout", site, alloc(to, redirect(body, buffer, {to, place})), line);
  return to;
}

}  // namespace gradloom::ir
