#pragma once
// The embedder's own, named as a file of gradloom's tree is: gradloom's headers do not find it.
namespace embedder {
struct Tensor {
  int rows = 3;
};
}  // namespace embedder
