// Entries that must not be used: damaged, deleted, of another instruction set, of another build.
#include "codegen/llvm/compiler.h"
#include "gradloom/text.h"
#include "runtime/cache/kernel_store.h"
#include "runtime/outputs.h"
#include "tests/support/named_strategy.h"
#include "tests/support/warm_cache.h"

namespace gradloom {
namespace {

using namespace testing;
using LlvmForeignCache = WarmCacheTest;

TEST_F(LlvmForeignCache, DamagedEntriesAreCompiledAgainAndReplaced) {
  ASSERT_TRUE(right(*std::make_unique<Runtime>(options()), 0));
  for (const char* prefix : {"k-", "i-"}) {
    const std::string path = files(prefix).at(0), whole = bytes_of(path);
    for (size_t i = 0; i < whole.size(); i += whole.size() / 40 + 1) {
      std::string torn = whole;
      torn[i] = static_cast<char>(torn[i] ^ 0x10);
      put_bytes(path, torn);
      Runtime runtime(options());
      ASSERT_TRUE(right(runtime, 0)) << prefix << i;
      const Stats s = runtime.stats();
      EXPECT_GE(s.disk_rejected, 1) << prefix << i;
      EXPECT_EQ(s.compiles, prefix[0] == 'k') << i;  // a damaged index is rebuilt without compiling
      ASSERT_EQ(bytes_of(path).size(), whole.size());
      Runtime again(options());
      ASSERT_TRUE(right(again, 0));
      EXPECT_EQ(again.stats().disk_hits, 1);
      EXPECT_EQ(again.stats().disk_rejected, 0);
    }
  }
}

TEST_F(LlvmForeignCache, CodeThatDoesNotLoadIsAMiss) {
  ASSERT_TRUE(right(*std::make_unique<Runtime>(options()), 0));
  const std::string path = files("k-").at(0);
  const KernelRecord whole = decode_kernel(bytes_of(path));
  // Valid frames around an invalid object, or one without the kernel's function.
  for (int damage = 0; damage < 3; ++damage) {
    KernelRecord record = whole;
    if (damage == 0) record.code = "no object";
    if (damage == 1) record.code.resize(record.code.size() / 2);
    if (damage == 2) record.kernel_name = "another";
    put_bytes(path, encode(record));
    log_.clear();
    Runtime runtime(options());
    ASSERT_TRUE(right(runtime, 0)) << damage;
    EXPECT_EQ(runtime.stats().compiles, 1);
    EXPECT_NE(log_.find("is not used"), std::string::npos) << log_;
  }
}

TEST_F(LlvmForeignCache, VanishedFilesAreMisses) {
  ASSERT_TRUE(right(*std::make_unique<Runtime>(options()), 0));
  fs::remove(files("k-").at(0));
  Runtime without_kernel(options());
  EXPECT_TRUE(right(without_kernel, 0));
  EXPECT_EQ(without_kernel.stats().compiles, 1);
  fs::remove(files("i-").at(0));
  Runtime without_index(options());
  EXPECT_TRUE(right(without_index, 0));
  EXPECT_EQ(without_index.stats().compiles, 0);  // the content is still present
  EXPECT_EQ(without_index.stats().disk_hits, 1);
  fs::remove_all(cache_);
  EXPECT_TRUE(right(without_index, 1));
  EXPECT_EQ(log_, "");
}

// The op's key as a Runtime makes it, for a given ISA.
struct Made {
  OpKey key;
  BuiltKernel built;
  IndexRecord index;
  KernelRecord kernel;
};
Made make_entry(const codegen::Isa& isa, const std::string& toolchain, int k) {
  const Op& op = *find_op("GatherGrad");
  const std::vector<Tensor> inputs = inputs_of(k);
  const Operands operands(op.schema(), inputs);
  const Attributes attributes{{"axis", int64_t{0}}};
  const Plan plan = op.check(operands.request(attributes, 1));
  ir::Target target = isa.target;
  target.threads = 1;
  const RunOptions run;
  const PlannedCall call{op, plan, choose_strategy(op, plan, run, target), run, 1, aligned_outputs};
  Made made{OpKey(call, target_text(target, isa.features), toolchain), build_kernel(call, target), {}, {}};
  made.kernel = {content_key(toolchain, isa.features, ir::print(made.built.lowered)), made.built.lowered.name, isa.cpu,
                 codegen::compile_object(made.built.lowered, isa).bytes, 1};
  made.index = {
      made.key.text(), content_id(made.kernel.key), made.built.sources, "GatherGrad", call.strategy.name, 1, {}};
  return made;
}
// The files that a runtime of that build would have left.
void put_entry(const std::string& folder, const Made& made) {
  DiskCache files({folder, {}, 1 << 30});
  files.write(kernel_file_name(made.index.content), encode(made.kernel));
  files.write(OpKey(made.index.key).file_name(), encode(made.index));
}

TEST_F(LlvmForeignCache, EntriesOfAnotherInstructionSetAreMisses) {
  if (!codegen::runs_here(codegen::isa_named("x86-64-v3"))) GTEST_SKIP() << "needs AVX2";
  const std::string toolchain = toolchain_text(codegen::toolchain_text());
  const Made wide = make_entry(codegen::isa_named("x86-64-v4"), toolchain, 0);  // compiled here, never run here
  DiskCache files({cache_, {}, 1 << 30});
  files.write(kernel_file_name(wide.index.content), encode(wide.kernel));
  files.write(wide.key.file_name(), encode(wide.index));
  RuntimeOptions masked = options();
  masked.isa = "x86-64-v3";
  {
    Runtime runtime(masked);
    EXPECT_TRUE(right(runtime, 0));
    const Stats s = runtime.stats();
    EXPECT_EQ(s.compiles, 1);
    EXPECT_EQ(s.disk_hits, 0);
    EXPECT_EQ(s.disk_miss_parts.count("target"), 1u);
  }
  // An index that refers to it nevertheless.
  const Made narrow = make_entry(codegen::isa_named("x86-64-v3"), toolchain, 0);
  IndexRecord crossed = narrow.index;
  crossed.content = wide.index.content;
  files.write(narrow.key.file_name(), encode(crossed));
  Runtime runtime(masked);
  EXPECT_TRUE(right(runtime, 0));
  EXPECT_EQ(runtime.stats().disk_rejected, 1) << log_;
  EXPECT_NE(log_.find("instruction set"), std::string::npos) << log_;
  EXPECT_EQ(runtime.stats().compiles, 0);  // its own content was already present
}

TEST_F(LlvmForeignCache, TheKeyIsTheOneThatARuntimeMakes) {
  const Made made = make_entry(codegen::host_isa(), toolchain_text(codegen::toolchain_text()), 0);
  put_entry(cache_, made);
  Runtime runtime(options());
  EXPECT_TRUE(right(runtime, 0));
  EXPECT_EQ(runtime.stats().disk_hits, 1);
  EXPECT_EQ(runtime.stats().compiles, 0);
}

// The same IR and emitter with another op or schedule: the code is found by content, each build stores its own index.
TEST_F(LlvmForeignCache, TwoBuildsShareCodeButNoIndex) {
  Made other = make_entry(codegen::host_isa(), toolchain_text(codegen::toolchain_text()), 0);
  const size_t build = other.index.key.find("\nbuild: ") + 8;
  ASSERT_NE(other.index.key.substr(build, 4), "0000");
  other.index.key.replace(build, 4, "0000");
  const std::string name = OpKey(other.index.key).file_name(), index = encode(other.index);
  put_entry(cache_, other);
  Runtime runtime(options());
  EXPECT_TRUE(right(runtime, 0));
  EXPECT_EQ(runtime.stats().compiles, 0);
  EXPECT_EQ(runtime.stats().disk_hits, 1);
  EXPECT_EQ(runtime.stats().disk_miss_parts, (std::map<std::string, int64_t>{{"build", 1}}));
  EXPECT_EQ(files("k-").size(), 1u);
  EXPECT_EQ(files("i-").size(), 2u);
  EXPECT_EQ(bytes_of(cache_ + "/" + name), index);
  EXPECT_EQ(log_, "");
}

TEST_F(LlvmForeignCache, TwoVersionsShareAFolder) {
  const Made other = make_entry(codegen::host_isa(), "another compiler", 0);
  put_entry(cache_, other);
  Runtime runtime(options());
  EXPECT_TRUE(right(runtime, 0));
  EXPECT_EQ(runtime.stats().compiles, 1);
  EXPECT_EQ(runtime.stats().disk_miss_parts, (std::map<std::string, int64_t>{{"toolchain", 1}}));
  EXPECT_EQ(files("k-").size(), 2u);
  EXPECT_EQ(log_, "");
  // A file of another format under our own name.
  for (const std::string& path : files("")) {
    std::string bytes = bytes_of(path);
    bytes[8] = static_cast<char>(bytes[8] + 1);
    put_bytes(path, bytes);
  }
  Runtime again(options());
  EXPECT_TRUE(right(again, 0));
  EXPECT_EQ(again.stats().compiles, 1);
  EXPECT_NE(
      log_.find(fmt::format("its format is {}, this library's is {}", cache_format_version + 1, cache_format_version)),
      std::string::npos)
      << log_;
}

}  // namespace
}  // namespace gradloom
