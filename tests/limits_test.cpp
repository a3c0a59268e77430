// What is asked for beyond any machine or any range is refused by name: sizes that wrap, options, a builder used twice, names that break lines.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cases.h"
#include "ir/builder.h"
#include "runtime/runtime.h"

namespace gradloom {
namespace {

using ir::Expr;

struct Refused {
  std::optional<ErrorCode> code;
  std::string message;
};
template <class Value>
Refused refused(const Result<Value>& result) {
  return result ? Refused{} : Refused{result.error().code(), result.error().what()};
}

// y[0] = t[0] with a scratch buffer of n x n.
ir::Kernel square_scratch() {
  ir::KernelBuilder b("square_scratch");
  const Expr n = b.scalar("n", 1);
  const ir::Buffer y = b.output("y", DType::f32, {1}), t = b.alloc("t", DType::f32, {n, n});
  b.store(t, {0, 0}, ir::constant(DType::f32, 1));
  b.store(y, {0}, ir::load(t, {0, 0}));
  return b.build();
}

TEST(Limits, ScratchWhoseSizeWrapsIsNotThere) {
  Runtime runtime({.threads = 1});
  const KernelExecutable kernel = runtime.compile(square_scratch()).value();
  std::vector<Tensor> y{Tensor::empty(DType::f32, {1})};
  for (const int shift : {31, 32, 62}) {
    const Refused r = refused(kernel(y, std::vector<int64_t>{int64_t{1} << shift}));
    EXPECT_EQ(r.code, ErrorCode::resource_exhausted) << shift << " " << r.message;
  }
  EXPECT_TRUE(kernel(y, std::vector<int64_t>{100}));
  EXPECT_EQ(*static_cast<float*>(y[0].data()), 1);
}

TEST(Limits, DimsThatWrapAreRefused) {
  ir::KernelBuilder b("wrap");
  const Expr n = b.scalar("n", 0);
  const ir::Buffer x = b.input("x", DType::f32, {n * n}), y = b.output("y", DType::f32, {1});
  b.store(y, {0}, ir::constant(DType::f32, 1));
  Runtime runtime({.threads = 1});
  const KernelExecutable kernel = runtime.compile(b.build()).value();
  const Refused r = refused(kernel(std::vector<Tensor>{Tensor::empty(DType::f32, {0}), Tensor::empty(DType::f32, {1})}, std::vector<int64_t>{int64_t{1} << 32}));
  EXPECT_EQ(r.code, ErrorCode::invalid_argument) << r.message;
  EXPECT_NE(r.message.find("n * n"), std::string::npos) << r.message;
}

// Each buffer alone would lie on the stack.
TEST(Limits, ManySmallBuffersFitASmallStack) {
  ir::KernelBuilder b("many");
  const ir::Buffer y = b.output("y", DType::f32, {1});
  constexpr int count = 600, elements = 4096;
  std::vector<ir::Buffer> buffers;
  for (int i = 0; i < count; ++i) buffers.push_back(b.alloc("t" + std::to_string(i), DType::f32, {elements}));
  b.loop("i", 0, elements, [&](Expr i) {
    for (const ir::Buffer& t : buffers) b.store(t, {i}, ir::constant(DType::f32, 1));
  });
  Expr sum = ir::constant(DType::f32, 0);
  for (const ir::Buffer& t : buffers) sum = b.let("sum", sum + ir::load(t, {elements - 1}));
  b.store(y, {0}, sum);
  struct Call {
    Runtime runtime{{.threads = 1}};
    KernelExecutable kernel;
    std::vector<Tensor> y{Tensor::empty(DType::f32, {1})};
    bool done = false;
  } call;
  call.kernel = call.runtime.compile(b.build()).value();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 1 << 20);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* given) -> void* {
                  auto* c = static_cast<Call*>(given);
                  c->done = c->kernel(c->y).ok();
                  return nullptr;
                },
                &call),
            0);
  pthread_join(thread, nullptr);
  EXPECT_TRUE(call.done);
  EXPECT_EQ(*static_cast<float*>(call.y[0].data()), count);
}

TEST(Limits, OptionsOutOfRangeAreRefused) {
  const auto message = [](RuntimeOptions options) -> std::string {
    try {
      Runtime runtime(std::move(options));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({.threads = -1}), "RuntimeOptions: threads is -1, expected 0 to 65536");
  EXPECT_EQ(message({.cache_bytes = -5}), "RuntimeOptions: cache_bytes is -5, expected at least 0");
  EXPECT_EQ(message({.target = static_cast<TargetKind>(9)}), "RuntimeOptions: target is 9, expected 0 to 4");
  EXPECT_EQ(message({.policy = static_cast<Policy>(7)}), "RuntimeOptions: policy is 7, expected 0 to 1");
  EXPECT_EQ(message({.specialise_after = 0}), "RuntimeOptions: specialise_after is 0, expected at least 1");
}

TEST(Limits, ABuilderBuildsOnce) {
  ir::KernelBuilder b("once");
  const ir::Buffer y = b.output("y", DType::f32, {1});
  b.store(y, {0}, ir::constant(DType::f32, 1));
  b.build();
  EXPECT_THROW(b.build(), Error);
  EXPECT_THROW(b.store(y, {0}, ir::constant(DType::f32, 1)), Error);
}

TEST(Limits, AMessageIsOneLineWhateverNamesHold) {
  Runtime runtime({.threads = 1});
  const Refused r = refused(runtime.run("Gather\n\x1b[31mGrad", std::vector<Tensor>{}));
  EXPECT_EQ(r.message.find_first_of("\n\x1b"), std::string::npos) << r.message;
  EXPECT_NE(r.message.find("Gather\\n\\x1b[31mGrad"), std::string::npos) << r.message;
}

TEST(Limits, APipeIsNoCase) {
  char folder[] = "/tmp/gradloom_pipe_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string pipe = std::string(folder) + "/case.json";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(cases::read_case(pipe), Error);  // reading it would wait for a writer
  unlink(pipe.c_str());
  rmdir(folder);
}

}  // namespace
}  // namespace gradloom
