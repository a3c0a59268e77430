#pragma once
// An op's own part of a plan's key, as a struct. The struct lists its fields once, in a static member
//
//   template <class Key, class Visit> static void fields(Key& key, Visit&& visit) { visit(key.axis, key.steps); }
//
// and has a default constructor. Fields: integers, enums, bool, double, arrays and structs of such, and at last one
// InlineVector. A plan is read by the struct that its key was set from.
#include <bit>
#include <type_traits>

#include "gradloom/op.h"

#pragma GCC visibility push(default)
namespace gradloom {

namespace plan_key {

struct Writer {
  InlineVector<int64_t, 4 * max_rank>& words;
  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  void put(double value) { words.push_back(std::bit_cast<int64_t>(value)); }
  template <class T, int N>
  void put(const InlineVector<T, N>& values) {
    for (const T& value : values) put(value);
  }
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_array_v<T>)
      for (const auto& one : value) put(one);
    else if constexpr (std::is_class_v<T>)
      T::fields(value, *this);
    else
      words.push_back(static_cast<int64_t>(value));
  }
};

struct Reader {
  const InlineVector<int64_t, 4 * max_rank>& words;
  int at = 0;
  template <class... T>
  void operator()(T&... values) {
    (take(values), ...);
  }
  void take(double& value) { value = std::bit_cast<double>(words[at++]); }
  template <class T, int N>
  void take(InlineVector<T, N>& values) {
    while (at < words.size()) values.push_back(static_cast<T>(words[at++]));
  }
  template <class T>
  void take(T& value) {
    if constexpr (std::is_array_v<T>)
      for (auto& one : value) take(one);
    else if constexpr (std::is_class_v<T>)
      T::fields(value, *this);
    else
      value = static_cast<T>(words[at++]);
  }
};

}  // namespace plan_key

template <class Key>
void set_key(Plan& plan, const Key& key) {
  plan.key.clear();
  plan_key::Writer writer{plan.key};
  Key::fields(key, writer);
}

template <class Key>
Key key_of(const Plan& plan) {
  Key key;
  plan_key::Reader reader{plan.key};
  Key::fields(key, reader);
  return key;
}

}  // namespace gradloom

#pragma GCC visibility pop
