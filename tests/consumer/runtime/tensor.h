#pragma once
// The embedder's own header, with the path of a file of gradloom's tree: gradloom's headers do not include it.
namespace embedder {
struct Tensor {
  int rows = 3;
};
}  // namespace embedder
