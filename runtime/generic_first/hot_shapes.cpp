#include "runtime/generic_first/hot_shapes.h"

#include <limits>

namespace gradloom {
namespace {
constexpr auto relaxed = std::memory_order_relaxed;
}

HotShapes::Way* HotShapes::find(uint64_t hash) const {
  Table* const table = ready_.load(std::memory_order_acquire);
  if (!table) return nullptr;
  for (Way& way : table->way[hash % sets]) {
    if (way.hash.load(relaxed) == hash) return &way;
  }
  return nullptr;
}

uint32_t HotShapes::count(uint64_t hash) {
  Table* table = ready_.load(std::memory_order_acquire);
  if (!table) {
    auto made = std::make_unique<Table>();
    if (ready_.compare_exchange_strong(table, made.get())) table = made.release();
  }
  if (Way* way = find(hash)) return way->calls.fetch_add(1, relaxed) + 1;
  Way* rarest = nullptr;
  uint32_t least = std::numeric_limits<uint32_t>::max();
  for (Way& way : table->way[hash % sets]) {
    const uint32_t calls = way.calls.load(relaxed);
    if (!rarest || calls < least) {
      rarest = &way;
      least = calls;
    }
  }
  rarest->state.store(counting, relaxed);
  rarest->calls.store(1, relaxed);
  rarest->hash.store(hash, relaxed);
  return 1;
}

uint32_t HotShapes::calls(uint64_t hash) const {
  const Way* way = find(hash);
  return way ? way->calls.load(relaxed) : 0;
}

HotShapes::State HotShapes::state(uint64_t hash) const {
  const Way* way = find(hash);
  return way ? static_cast<State>(way->state.load(relaxed)) : counting;
}

void HotShapes::set_state(uint64_t hash, State state) {
  if (Way* way = find(hash)) way->state.store(state, relaxed);
}

void HotShapes::halve() {
  Table* const table = ready_.load(std::memory_order_acquire);
  if (!table) return;
  for (auto& set : table->way) {
    for (Way& way : set) way.calls.store(way.calls.load(relaxed) / 2, relaxed);
  }
}

}  // namespace gradloom
