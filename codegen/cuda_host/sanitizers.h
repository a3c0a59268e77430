#pragma once
// Which sanitizers this file is built with.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GRADLOOM_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define GRADLOOM_TSAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define GRADLOOM_ASAN 1
#endif
#ifdef __SANITIZE_THREAD__
#define GRADLOOM_TSAN 1
#endif
