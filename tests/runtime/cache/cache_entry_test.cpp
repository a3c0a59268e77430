// Contents of the cache's files: hashes, entries, and the keys that name them.
#include "runtime/cache/cache_entry.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>

#include "runtime/cache/kernel_key.h"
#include "runtime/cache/op_key.h"
#include "runtime/cache/saved_call.h"
#include "tests/runtime/runtime_ops.h"

namespace gradloom {
namespace {

TEST(Hash, IsMurmur3) {
  // From the reference implementation's verification of x64_128: the hash of the hashes of 0, 01, 0102, ... with seeds
  // 256 - length.
  std::string hashes;
  for (int length = 0; length < 256; ++length) {
    std::string key;
    for (int i = 0; i < length; ++i) key += static_cast<char>(i);
    const Hash128 hash = hash128(key, static_cast<uint32_t>(256 - length));
    hashes.append(reinterpret_cast<const char*>(&hash), sizeof hash);
  }
  EXPECT_EQ(static_cast<uint32_t>(hash128(hashes).low), 0x6384BA69u);
}

TEST(Entries, AreReadAsWritten) {
  const IndexRecord index{
      "key", content_id("k"),         {{ScalarSource::dim, 1, 2}, {ScalarSource::param, 0, 3}}, "Op", "direct",
      2.5,   {"split i", "vectorize"}};
  const IndexRecord again = decode_index(encode(index));
  EXPECT_EQ(again.key, index.key);
  EXPECT_EQ(again.content, index.content);
  ASSERT_EQ(again.sources.size(), 2u);
  EXPECT_EQ(again.sources[0].kind, ScalarSource::dim);
  EXPECT_EQ(again.sources[0].view, 1);
  EXPECT_EQ(again.sources[1].index, 3);
  EXPECT_EQ(again.schedule_trace, index.schedule_trace);
  const KernelRecord kernel{content_key("compiler", "+a,-b", "the\nir\ntext"), "name", "cpu", "code", 1};
  const KernelRecord kernel_again = decode_kernel(encode(kernel));
  EXPECT_EQ(kernel_again.key, kernel.key);
  EXPECT_EQ(kernel_again.code, "code");
  EXPECT_EQ(ir_of_content_key(kernel.key), "the\nir\ntext");
  EXPECT_EQ(features_of_content_key(kernel.key), "+a,-b");
}

// The texts of two plans are equal exactly when their words are.
TEST(OpKey, TellsApartWhatTheMemoryCacheTellsApart) {
  const testing::ScaleOp op;
  std::mt19937 random(7);
  struct Sample {
    std::vector<uint64_t> words;
    std::string text, file;
  };
  std::vector<Sample> samples;
  for (int i = 0; i < 1500; ++i) {
    Plan plan;
    for (int v = random() % 3; v >= 0; --v) {
      View view{.output = random() % 2 == 0,
                .index = static_cast<int>(random() % 2),
                .dtype = random() % 2 ? DType::f32 : DType::i64};
      for (int d = random() % 3; d > 0; --d) {
        view.dims.push_back(random() % 2 + 1);
        view.strides.push_back(random() % 3);
      }
      plan.views.push_back(view);
    }
    for (int k = random() % 2; k >= 0; --k) plan.key.push_back(random() % 2);
    const Strategy& strategy = op.strategies()[random() % 2];
    const RunOptions options{.accumulate = random() % 2 == 0, .any_shape = random() % 2 == 0};
    const PlannedCall call{
        op, plan, strategy, options, static_cast<uint32_t>(random() % 2), random() % 2 ? aligned_outputs : any_outputs};
    const OpKey key(call, "target", "toolchain");
    const KernelKey words(call);
    samples.push_back({{words.words().begin(), words.words().end()}, key.text(), key.file_name()});
    EXPECT_EQ(OpKey(key.text()).file_name(), key.file_name());
  }
  int same = 0;
  for (size_t a = 0; a < samples.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const bool equal = samples[a].words == samples[b].words;
      ASSERT_EQ(equal, samples[a].text == samples[b].text) << samples[a].text << samples[b].text;
      ASSERT_EQ(equal, samples[a].file == samples[b].file);
      same += equal;
    }
  }
  EXPECT_GT(same, 10);
}

TEST(OpKey, TellsTargetsApartByEveryField) {
  const std::function<void(ir::Target&)> changes[] = {
      [](ir::Target& t) { t.name = "another"; },
      [](ir::Target& t) { t.vector_bytes *= 2; },
      [](ir::Target& t) { t.vector_registers *= 2; },
      [](ir::Target& t) { t.hardware_scatter = !t.hardware_scatter; },
      [](ir::Target& t) { t.fast_scatter = !t.fast_scatter; },
      [](ir::Target& t) { t.streaming_stores = !t.streaming_stores; },
      [](ir::Target& t) { t.l1_bytes *= 2; },
      [](ir::Target& t) { t.l2_bytes *= 2; },
      [](ir::Target& t) { t.last_level_bytes *= 2; },
      [](ir::Target& t) { t.threads *= 2; },
      [](ir::Target& t) { t.gpu = !t.gpu; },
      [](ir::Target& t) { t.multiprocessors *= 2; },
      [](ir::Target& t) { t.cooperative = !t.cooperative; },
      [](ir::Target& t) { t.block_threads *= 2; },
      [](ir::Target& t) { t.shared_bytes *= 2; },
      [](ir::Target& t) { t.matrix_units = !t.matrix_units; },
  };
  std::set<std::string> texts{target_text({}, "")};
  for (const auto& change : changes) {
    ir::Target target;
    change(target);
    EXPECT_TRUE(texts.insert(target_text(target, "")).second) << target_text(target, "");
  }
}

TEST(OpKey, NamesWhatDiffersFromTheNearest) {
  const testing::ScaleOp op;
  const auto name = [&](int64_t n, const std::string& strategy, const char* target) {
    Plan plan;
    plan.views.push_back({.dims = {n}, .strides = {1}});
    const RunOptions options;
    return OpKey({op, plan, find_strategy(op, strategy), options, 1, 64}, target, "toolchain").file_name();
  };
  const std::vector<std::string> there{name(5, "two_loops", "v3"), name(6, "direct", "v4"), name(7, "direct", "v3"),
                                       "k-0", ".lock"};
  const auto differing = [&](const std::string& wanted) { return nearest_key(wanted, there).value().differing; };
  EXPECT_EQ(differing(name(8, "direct", "v3")), (std::vector{KeyPart::dims}));
  EXPECT_EQ(differing(name(6, "direct", "v3")).size(), 1u);
  EXPECT_EQ(differing(name(6, "direct", "v2")), (std::vector{KeyPart::target}));
  EXPECT_FALSE(nearest_key(name(8, "direct", "v3"), {}));
}

}  // namespace
}  // namespace gradloom
