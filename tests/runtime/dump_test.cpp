// The dump of kernels' texts, and the breakdown of compile time.
#include "runtime/diagnose/dump.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "gradloom/builder.h"
#include "gradloom/runtime.h"
#include "gradloom/text.h"
#include "runtime/diagnose/log.h"
#include "tests/support/cache_folder.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

class DumpTest : public testing::CacheFolderTest {
 protected:
  ~DumpTest() override { unsetenv("GRADLOOM_DUMP"); }
  static Result<std::vector<Tensor>> run(Runtime& runtime, bool any_shape = false) {
    const std::vector<Tensor> inputs{Tensor::of(DType::i64, {2}, std::vector<int64_t>{4, 3}),
                                     Tensor::of(DType::i64, {2}, std::vector<int64_t>{2, 0}),
                                     Tensor::of(DType::f32, {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6})};
    return runtime.run("GatherGrad", inputs, {}, {.any_shape = any_shape});
  }
  std::set<std::string> files(const std::string& sub = "") const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ + sub)) names.insert(entry.path().filename().string());
    return names;
  }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ + "/" + name).rdbuf();
    return text.str();
  }
};

std::set<std::string> extensions(const std::set<std::string>& names) {
  std::set<std::string> found;
  for (const std::string& name : names) found.insert(name.substr(name.find('.')));
  return found;
}

TEST_F(DumpTest, AKernelIsWrittenAtEveryStageUnderOneReadableName) {
  Runtime runtime({.threads = 1, .dump_folder = folder_ + "/a/b"});
  ASSERT_TRUE(run(runtime).ok());
  const std::set<std::string> names = files("/a/b");
  const bool compiles = runtime.target_name() != "interpreter";
  EXPECT_EQ(extensions(names),
            compiles ? (std::set<std::string>{".authored.loop", ".scheduled.loop", ".lowered.loop", ".ll", ".s"})
                     : (std::set<std::string>{".authored.loop"}));
  for (const std::string& name : names) {
    EXPECT_EQ(name.find("GatherGrad_" + runtime.last_report().strategy + "_"), 0u) << name;
    EXPECT_NE(name.find("_i64_f32_"), std::string::npos) << name;
    const std::string text = read("a/b/" + name);
    if (name.ends_with(".loop")) {
      EXPECT_EQ(ir::print(ir::parse(text)), text) << name;
    } else {
      EXPECT_NE(text.find(name.ends_with(".ll") ? "define " : "ret"), std::string::npos) << name;
    }
  }
  // A hit writes nothing; another kernel gets another name; the same kernel of another Runtime the same.
  ASSERT_TRUE(run(runtime).ok());
  EXPECT_EQ(files("/a/b"), names);
  Runtime again({.threads = 1, .dump_folder = folder_ + "/a/b"});
  ASSERT_TRUE(run(again).ok());
  EXPECT_EQ(files("/a/b"), names);
  ASSERT_TRUE(run(runtime, /*any_shape=*/true).ok());
  EXPECT_EQ(files("/a/b").size(), 2 * names.size());
  EXPECT_EQ(log_, "");
}

TEST_F(DumpTest, TheEnvironmentNamesTheFolderAndOptionsGoFirst) {
  setenv("GRADLOOM_DUMP", (folder_ + "/environment").c_str(), 1);
  Runtime runtime({.target = TargetKind::interpreter});
  ASSERT_TRUE(run(runtime).ok());
  EXPECT_EQ(files("/environment").size(), 1u);
  Runtime chosen({.target = TargetKind::interpreter, .dump_folder = folder_ + "/option"});
  ASSERT_TRUE(run(chosen).ok());
  EXPECT_EQ(files("/option").size(), 1u);
  EXPECT_EQ(files("/environment").size(), 1u);
}

TEST_F(DumpTest, AnOwnKernelsNameCannotLeaveTheFolder) {
  ir::KernelBuilder b("../../up/\n*");
  ir::Buffer y = b.output("y", DType::f64, {4});
  b.loop("i", 0, 4, [&](ir::Expr i) { b.store(y, {i}, ir::cast(DType::f64, i)); });
  Runtime runtime({.target = TargetKind::interpreter, .dump_folder = folder_ + "/own"});
  ASSERT_TRUE(runtime.compile(b.build()).ok());
  ASSERT_EQ(files("/own").size(), 1u);
  EXPECT_EQ(files("/own").begin()->find("______up____own_f64_"), 0u) << *files("/own").begin();
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(DumpTest, AFailureToWriteIsALineAndNoFailedCall) {
  std::ofstream(folder_ + "/file") << "in the way";
  Runtime blocked({.target = TargetKind::interpreter, .dump_folder = folder_ + "/file"});
  EXPECT_TRUE(run(blocked).ok());
  EXPECT_EQ(log_.find("dump: cannot "), 0u) << log_;
  EXPECT_EQ(std::count(log_.begin(), log_.end(), '\n'), 1) << log_;
  log_.clear();
  write_dump("/dev/full/no", "kernel", {{"s", "text"}});
  EXPECT_NE(log_.find("/dev/full"), std::string::npos) << log_;
  log_.clear();
  fs::create_symlink("/dev/full", folder_ + "/kernel.s");
  write_dump(folder_, "kernel", {{"s", "text"}});
  EXPECT_NE(log_.find("No space left"), std::string::npos) << log_;
}

TEST_F(DumpTest, StagesAddUpToTheCompilationsTime) {
  Runtime runtime;
  if (runtime.target_name() == "interpreter") GTEST_SKIP() << "nothing is compiled without LLVM";
  ASSERT_TRUE(run(runtime).ok());
  ASSERT_TRUE(run(runtime, /*any_shape=*/true).ok());
  const auto sum = [](const CompileStages& s) { return s.emit_ms + s.optimize_ms + s.codegen_ms + s.link_ms; };
  const KernelReport& report = runtime.last_report();
  EXPECT_NEAR(sum(report.stages), report.compile_ms, 1e-9);
  double passes = 0;
  for (const auto& [pass, ms] : report.pass_ms) passes += ms;
  EXPECT_GT(report.pass_ms.size(), 3u);
  EXPECT_EQ(report.pass_ms[0].first, "expand_reductions");
  EXPECT_GT(passes, 0);
  EXPECT_LT(passes, report.build_ms);
  for (const double ms :
       {report.stages.emit_ms, report.stages.optimize_ms, report.stages.codegen_ms, report.stages.link_ms})
    EXPECT_GT(ms, 0);
  const Stats stats = runtime.stats();
  EXPECT_NEAR(sum(stats.stages), stats.compile_ms, 1e-9);
  EXPECT_GT(sum(stats.stages), sum(report.stages));
}

}  // namespace
}  // namespace gradloom
