#include "cli/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/cases.h"

namespace gradloom::cli {
namespace {

constexpr int64_t shown_whole = 1000, edge = 3;

// The positions along an axis that are printed; -1 stands for the ellipsis.
std::vector<int64_t> shown(int64_t extent, bool cut) {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < extent; ++i) {
    if (cut && extent > 2 * edge && i == edge) {
      positions.push_back(-1);
      i = extent - edge;
    }
    positions.push_back(i);
  }
  return positions;
}

void write(const Tensor& tensor, bool cut, int axis, int64_t first, size_t width, std::string& out) {
  if (axis == tensor.dims().size()) {
    out += fmt::format("{:>{}}", cases::element_text(tensor, first), width);
    return;
  }
  const int64_t stride = dense_strides(tensor.dims())[axis];
  const bool last_axis = axis == tensor.dims().size() - 1;
  out += '[';
  bool separate = false;
  for (const int64_t i : shown(tensor.dims()[axis], cut)) {
    if (separate) out += last_axis ? ", " : ",\n" + std::string(axis + 1, ' ');
    separate = true;
    if (i < 0)
      out += "...";
    else
      write(tensor, cut, axis + 1, first + i * stride, width, out);
  }
  out += ']';
}

size_t widest(const Tensor& tensor, bool cut, int axis, int64_t first) {
  if (axis == tensor.dims().size()) return cases::element_text(tensor, first).size();
  const int64_t stride = dense_strides(tensor.dims())[axis];
  size_t width = 0;
  for (const int64_t i : shown(tensor.dims()[axis], cut))
    if (i >= 0) width = std::max(width, widest(tensor, cut, axis + 1, first + i * stride));
  return width;
}

}  // namespace

Table::Table(std::vector<std::string> headers, std::vector<size_t> widths)
    : headers_(std::move(headers)), widths_(std::move(widths)) {
  widths_.resize(headers_.size());
  for (size_t c = 0; c < headers_.size(); ++c) {
    right_.push_back(headers_[c].starts_with('>'));
    if (right_.back()) headers_[c].erase(0, 1);
    widths_[c] = std::max(widths_[c], headers_[c].size());
  }
}

void Table::row(std::vector<std::string> cells) {
  for (size_t c = 0; c < widths_.size(); ++c) widths_[c] = std::max(widths_[c], cells[c].size());
  rows_.push_back(std::move(cells));
}

std::string Table::line(const std::vector<std::string>& cells) const {
  std::string text;
  for (size_t c = 0; c < cells.size(); ++c) {
    if (c > 0) text += "  ";
    text += right_[c] ? fmt::format("{:>{}}", cells[c], widths_[c]) : fmt::format("{:<{}}", cells[c], widths_[c]);
  }
  return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
}

std::string Table::text() const {
  std::string out = line(headers_);
  for (const auto& row : rows_) out += line(row);
  return out;
}

std::string tensor_text(const Tensor& dense) {
  const bool cut = dense.elements() > shown_whole;
  std::string out;
  write(dense, cut, 0, 0, dense.elements() > 0 ? widest(dense, cut, 0, 0) : 0, out);
  return out;
}

std::string milliseconds_text(double ms) {
  if (!std::isfinite(ms)) return "-";
  return ms >= 100  ? fmt::format("{:.0f}", ms)
         : ms >= 10 ? fmt::format("{:.1f}", ms)
         : ms >= 1  ? fmt::format("{:.2f}", ms)
                    : fmt::format("{:.3g}", ms);
}

}  // namespace gradloom::cli
