// Tensors, recycled memory and DLPack.
#include "gradloom/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <thread>

#include "gradloom/dlpack.h"
#include "gradloom/error.h"
#include "runtime/memory/allocate.h"
#include "runtime/memory/recycler.h"

namespace gradloom {
namespace {

template <class T>
T at(const Tensor& t, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(t.data()) + i * sizeof(T), sizeof(T));
  return value;
}

ErrorCode code_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::internal;
}

TEST(Tensor, ConvertsValuesAsCastDoes) {
  const Tensor h = Tensor::of(DType::f16, {3}, std::vector<float>{1.0f, 65504.0f, 1e9f});
  EXPECT_EQ(at<uint16_t>(h, 0), 0x3c00);
  EXPECT_EQ(at<uint16_t>(h, 1), 0x7bff);
  EXPECT_EQ(at<uint16_t>(h, 2), 0x7c00);
  EXPECT_EQ(at<uint16_t>(Tensor::of(DType::bf16, {1}, std::vector<double>{1.0}), 0), 0x3f80);
  EXPECT_EQ(at<int8_t>(Tensor::of(DType::i8, {1}, std::vector<int>{300}), 0), 44);
  EXPECT_EQ(at<uint8_t>(Tensor::of(DType::boolean, {2}, std::vector<int>{0, 7}), 1), 1);
  EXPECT_EQ(at<float>(Tensor::of(DType::f32, {2}, std::vector<bool>{false, true}), 1), 1.0f);
  EXPECT_EQ(at<int32_t>(Tensor::of(DType::i32, {1}, std::vector<float>{-1e20f}), 0), INT32_MIN);
  EXPECT_EQ(at<double>(Tensor::of(DType::f64, {1}, std::vector<uint64_t>{~uint64_t{0}}), 0), 18446744073709551616.0);
  EXPECT_EQ(code_of([] { (void)Tensor::of(DType::f32, {3}, std::vector<float>{1, 2}); }), ErrorCode::invalid_argument);
}

TEST(Tensor, SlicesShareTheMemoryAndKeepItAlive) {
  auto owner = std::make_shared<std::vector<float>>(12);
  for (int i = 0; i < 12; ++i) (*owner)[i] = static_cast<float>(i);
  const std::weak_ptr<std::vector<float>> alive = owner;
  Tensor whole = Tensor::share(owner, owner->data(), DType::f32, {3, 4});
  const Tensor rows = whole.slice(0, 1, 3), columns = whole.slice(-1, 1, 3), corner = columns.slice(0, 2, 3);
  owner.reset(), whole = {};
  ASSERT_FALSE(alive.expired());
  EXPECT_TRUE(rows.dense());
  EXPECT_EQ(to_string(rows.dims()), "[2,4]");
  EXPECT_EQ(at<float>(rows, 7), 11);
  EXPECT_FALSE(columns.dense());
  EXPECT_EQ(to_string(columns.dims()), "[3,2]");
  EXPECT_EQ(to_string(columns.strides()), "[4,1]");
  EXPECT_EQ(columns.end_byte() - columns.begin_byte(), 10 * 4);
  EXPECT_TRUE(corner.dense());
  EXPECT_EQ(at<float>(corner, 0), 9);
  EXPECT_EQ(at<float>(corner, 1), 10);
}

TEST(Tensor, SlicesOfAnyStridesAndSizes) {
  float data[24] = {};
  const Tensor reversed = Tensor::borrow(data + 23, DType::f32, {2, 3}, {-12, -2});
  EXPECT_EQ(reversed.slice(1, 2, 3).data(), data + 19);
  EXPECT_EQ(reversed.slice(0, 1, 2).data(), data + 11);
  EXPECT_EQ(reversed.slice(0, 2, 2).elements(), 0);
  EXPECT_EQ(Tensor::borrow(static_cast<void*>(nullptr), DType::f32, {0, 3}).slice(1, 1, 3).elements(), 0);
  EXPECT_FALSE(Tensor::borrow(static_cast<const void*>(data), DType::f32, {24}).slice(0, 1, 2).writable());
  EXPECT_TRUE(reversed.slice(0, 0, 1).writable());
  for (const auto& [axis, begin, end] : std::vector<std::array<int64_t, 3>>{
           {0, -1, 1}, {0, 2, 1}, {0, 0, 3}, {2, 0, 1}, {-3, 0, 1}, {0, INT64_MIN, INT64_MAX}})
    EXPECT_EQ(code_of([&] { (void)reversed.slice(static_cast<int>(axis), begin, end); }), ErrorCode::invalid_argument)
        << axis << ", " << begin << ", " << end;
}

TEST(Tensor, ViewsStayWithinItsMemory) {
  float data[24] = {};
  const Tensor part = Tensor::borrow(data + 4, DType::f32, {3, 4});
  EXPECT_EQ(part.view({2, 5}, {}, 2).data(), data + 6);
  EXPECT_EQ(part.view({12}, {-1}, 11).begin_byte(), part.begin_byte());
  EXPECT_EQ(part.view({7, 3}, {0, 1}, 9).end_byte(), part.end_byte());
  EXPECT_EQ(part.view({0, 5}, {}, 100).elements(), 0);
  const auto refused = [&](const Dims& dims, const Dims& strides, int64_t offset) {
    return code_of([&] { (void)part.view(dims, strides, offset); });
  };
  EXPECT_EQ(refused({13}, {}, 0), ErrorCode::invalid_argument);
  EXPECT_EQ(refused({12}, {}, 1), ErrorCode::invalid_argument);
  EXPECT_EQ(refused({1}, {}, -1), ErrorCode::invalid_argument);
  EXPECT_EQ(refused({2}, {-1}, 0), ErrorCode::invalid_argument);
  EXPECT_EQ(refused({1}, {}, INT64_MAX), ErrorCode::invalid_argument);
  EXPECT_EQ(refused({2, 2}, {1}, 0), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { (void)Tensor().view({0}); }), ErrorCode::invalid_argument);
}

TEST(Tensor, KnowsWhichBytesItsElementsLieIn) {
  float data[24] = {};
  const Tensor reversed = Tensor::borrow(data + 23, DType::f32, {2, 3}, {-12, -2});
  EXPECT_EQ(reversed.begin_byte(), reinterpret_cast<const char*>(data + 23 - 12 - 4));
  EXPECT_EQ(reversed.end_byte(), reinterpret_cast<const char*>(data + 24));
  EXPECT_FALSE(reversed.dense());
  const Tensor spread = Tensor::borrow(data, DType::f32, {2, 3}, {0, 0});
  EXPECT_EQ(spread.end_byte() - spread.begin_byte(), 4);
  const Tensor none = Tensor::borrow(static_cast<void*>(nullptr), DType::f32, {2, 0});
  EXPECT_TRUE(none.present());
  EXPECT_EQ(none.elements(), 0);
  EXPECT_EQ(none.begin_byte(), none.end_byte());
  EXPECT_FALSE(Tensor().present());
  EXPECT_TRUE(Tensor::borrow(data, DType::f32, {1, 3}, {77, 1}).dense());
}

TEST(Tensor, RefusesWhatHasNoMemory) {
  float x = 0;
  EXPECT_EQ(code_of([&] { (void)Tensor::borrow(&x, DType::f32, {-1}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)Tensor::borrow(&x, DType::f32, {2}, {1, 1}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)Tensor::borrow(&x, DType::f32, {3}, {int64_t{1} << 61}); }),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)Tensor::borrow(static_cast<void*>(nullptr), DType::f32, {1}); }),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)Tensor::empty(DType::f32, {int64_t{1} << 58}); }), ErrorCode::resource_exhausted);
  EXPECT_EQ(code_of([&] {
              (void)Tensor::empty(DType::f32, {int64_t{1} << 40, int64_t{1} << 40});
            }),
            ErrorCode::invalid_argument);
}

TEST(Recycler, ReusesAlignedBlocksOfEverySize) {
  auto recycler = std::make_shared<Recycler>(int64_t{64} << 20);
  for (int64_t bytes : {1, 64, 65, 4096, 4097, 100000, 2 << 20, (2 << 20) + 1, 7 << 20}) {
    void* first = recycler->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u) << bytes;
    if (bytes >= Recycler::huge_page_bytes) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % Recycler::huge_page_bytes, 0u) << bytes;
    }
    std::memset(first, 0xab, bytes);
    recycler->release(first, bytes);
    void* second = recycler->allocate(bytes);
    EXPECT_EQ(second, first) << bytes;
    recycler->release(second, bytes);
    EXPECT_LE(recycler_block_bytes(bytes), std::max<int64_t>({64, bytes * 2, 0}));
  }
}

TEST(Recycler, KeepsNoMoreThanItsBudgetOldestGoingFirst) {
  Recycler recycler(1 << 20);
  void* a = recycler.allocate(512 << 10);
  void* b = recycler.allocate(384 << 10);
  void* c = recycler.allocate(256 << 10);
  void* big = recycler.allocate(2 << 20);
  recycler.release(a, 512 << 10);
  recycler.release(b, 384 << 10);
  EXPECT_EQ(recycler.kept_bytes(), 896 << 10);
  recycler.release(c, 256 << 10);  // pushes a out
  EXPECT_EQ(recycler.kept_bytes(), 640 << 10);
  recycler.release(big, 2 << 20);  // over the budget by itself
  EXPECT_EQ(recycler.kept_bytes(), 640 << 10);
  void* again = recycler.allocate(384 << 10);
  EXPECT_EQ(again, b);
  recycler.release(again, 384 << 10);
}

TEST(Recycler, TensorsOutliveTheirRecyclerAndThread) {
  auto recycler = std::make_shared<Recycler>(1 << 20);
  Tensor big, small;
  std::thread([&] {
    big = allocate_tensor(recycler, DType::f32, {1 << 16});
    small = allocate_tensor(recycler, DType::f32, {4});
  }).join();
  std::weak_ptr<Recycler> watch = recycler;
  recycler.reset();
  std::memset(big.data(), 1, 4 << 16);
  std::memset(small.data(), 1, 16);
  EXPECT_FALSE(watch.expired());
  Tensor copy = big;
  big = {};
  EXPECT_EQ(at<uint32_t>(copy, 65535), 0x01010101u);
  copy = small = {};
  EXPECT_TRUE(watch.expired());
}

TEST(Recycler, ManyThreadsShareIt) {
  auto recycler = std::make_shared<Recycler>(4 << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const int64_t bytes = 16 + (i * 7919 + t * 104729) % 200000;
        Tensor x = allocate_tensor(recycler, DType::u8, {bytes});
        std::memset(x.data(), t, bytes);
        EXPECT_EQ(at<uint8_t>(x, bytes - 1), t);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_LE(recycler->kept_bytes(), 4 << 20);
}

// A producer's tensor that counts the calls of its deleter.
struct Produced {
  DLManagedTensor managed{};
  int64_t shape[2] = {2, 3}, strides[2] = {1, 2};
  float data[7] = {0, 1, 2, 3, 4, 5, 6};
  int deleted = 0;
  Produced() {
    managed.dl_tensor = {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, sizeof(float)};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) { ++static_cast<Produced*>(self->manager_ctx)->deleted; };
  }
};

TEST(DLPack, ImportsAndDeletesOnceWithTheLastCopy) {
  Produced produced;
  {
    Tensor t = Tensor::from_dlpack(&produced.managed);
    EXPECT_EQ(t.dtype(), DType::f32);
    EXPECT_EQ(t.dims(), (Dims{2, 3}));
    EXPECT_EQ(t.strides(), (Dims{1, 2}));
    EXPECT_EQ(at<float>(t, 0), 1.0f);  // past byte_offset
    EXPECT_FALSE(t.dense());
    Tensor copy = t;
    t = {};
    EXPECT_EQ(produced.deleted, 0);
  }
  EXPECT_EQ(produced.deleted, 1);
}

TEST(DLPack, RoundTripKeepsMemoryUntilTheDeleter) {
  Produced produced;
  DLManagedTensor* exported = Tensor::from_dlpack(&produced.managed).to_dlpack();
  EXPECT_EQ(produced.deleted, 0);
  EXPECT_EQ(exported->dl_tensor.data, produced.data + 1);
  EXPECT_EQ(exported->dl_tensor.strides[1], 2);
  Tensor back = Tensor::from_dlpack(exported);
  EXPECT_EQ(at<float>(back, 5), 6.0f);
  back = {};
  EXPECT_EQ(produced.deleted, 1);
}

TEST(DLPack, EveryDtypeRoundTrips) {
  for (int i = 0; i < dtype_count; ++i) {
    const DType dtype = static_cast<DType>(i);
    const Tensor back = Tensor::from_dlpack(Tensor::empty(dtype, {3}).to_dlpack());
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.elements(), 3);
  }
}

TEST(DLPack, RefusalLeavesTheCallerItsTensor) {
  Produced produced;
  produced.managed.dl_tensor.device.device_type = static_cast<DLDeviceType>(7);  // Vulkan's
  EXPECT_EQ(code_of([&] { (void)Tensor::from_dlpack(&produced.managed); }), ErrorCode::unsupported);
  produced.managed.dl_tensor.device.device_type = kDLCPU;
  produced.managed.dl_tensor.dtype = {kDLComplex, 64, 1};
  EXPECT_EQ(code_of([&] { (void)Tensor::from_dlpack(&produced.managed); }), ErrorCode::unsupported);
  produced.managed.dl_tensor.dtype = {kDLFloat, 32, 4};
  EXPECT_EQ(code_of([&] { (void)Tensor::from_dlpack(&produced.managed); }), ErrorCode::unsupported);
  produced.managed.dl_tensor.dtype = {kDLFloat, 32, 1};
  produced.managed.dl_tensor.ndim = 17;
  EXPECT_EQ(code_of([&] { (void)Tensor::from_dlpack(&produced.managed); }), ErrorCode::unsupported);
  produced.managed.dl_tensor.ndim = 2;
  produced.managed.dl_tensor.device = {kDLCUDA, -1};  // must not pass for the host's memory
  EXPECT_EQ(code_of([&] { (void)Tensor::from_dlpack(&produced.managed); }), ErrorCode::invalid_argument);
  EXPECT_EQ(produced.deleted, 0);
  const float x = 1;
  EXPECT_EQ(code_of([&] { (void)Tensor::borrow(&x, DType::f32, {1}).to_dlpack(); }), ErrorCode::unsupported);
}

TEST(Dlpack, NewerStructsSayWhatIsReadOnly) {
  const float values[2] = {1, 2};
  const Tensor read_only = Tensor::borrow(static_cast<const void*>(values), DType::f32, {2});
  DLManagedTensorVersioned* exported = read_only.to_dlpack_versioned();
  EXPECT_EQ(exported->version.major, 1u);
  EXPECT_EQ(exported->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
  {
    const Tensor back = Tensor::from_dlpack(exported);
    EXPECT_FALSE(back.writable());
    EXPECT_EQ(back.data(), values);
  }
  exported = Tensor::empty(DType::i16, {2, 3}).to_dlpack_versioned();
  EXPECT_EQ(exported->flags, 0u);
  EXPECT_TRUE(Tensor::from_dlpack(exported).writable());
  // Another major version is refused, and stays the caller's.
  exported = read_only.to_dlpack_versioned();
  exported->version.major = 2;
  EXPECT_EQ(code_of([&] { (void)Tensor::from_dlpack(exported); }), ErrorCode::unsupported);
  exported->deleter(exported);
  EXPECT_EQ(code_of([] { (void)Tensor().to_dlpack_versioned(); }), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace gradloom
