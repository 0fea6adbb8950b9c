// The work of yolact_deform_im2col, on the arrays of one image, without MXNet.
//
// Everything works on maps with the channels last: then a sample is a weighted sum of four rows of
// C floats that lie side by side, and its gradients are sums and products of such rows.  The
// compiler turns these into vector instructions; nothing is gathered, scattered or transposed but
// the small map itself.  The map gets a border of one pixel of zeros, so that no sample needs to
// ask which of its four pixels exist.
#ifndef YOLACT_MX_DEFORM_IM2COL_H_
#define YOLACT_MX_DEFORM_IM2COL_H_

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace yolact_mx {

// Pixels that are transposed at a time
constexpr int kTile = 16;

struct Geometry {
  int batch, channels, height, width;  // of the map
  int out_height, out_width, taps;     // of the columns
  int kernel_width, stride_y, stride_x, pad_y, pad_x;

  int positions() const { return out_height * out_width; }
  // Sizes of one image's arrays; row and map: of the bordered map
  std::size_t image() const { return static_cast<std::size_t>(channels) * height * width; }
  std::size_t row() const { return static_cast<std::size_t>(width + 2) * channels; }
  std::size_t map() const { return (height + 2) * row(); }
  std::size_t samples() const { return static_cast<std::size_t>(taps) * positions(); }
  std::size_t columns() const { return samples() * channels; }
};

// Where one tap of one output position samples the map
struct Sample {
  bool inside;         // whether any of the four pixels may be in the map
  std::size_t start;   // of the upper left pixel in the bordered map
  float y, x, fy, fx;  // position in the map, its distance from the upper left pixel
};

// What the four pixels count with mask m: upper left, upper right, lower left, lower right
struct Weights {
  float w00, w01, w10, w11;
};

inline Weights weights(const Sample& s, float m) {
  const float lower = m * s.fy, upper = m - lower;
  const float w01 = upper * s.fx, w11 = lower * s.fx;
  return {upper - w01, w01, lower - w11, w11};
}

inline Sample sample(const Geometry& g, const float* offset, int position, int tap) {
  const std::size_t plane = g.positions();
  const int row = position / g.out_width, column = position % g.out_width;
  const float* own = offset + 2 * tap * plane + position;
  Sample s;
  s.y = row * g.stride_y - g.pad_y + tap / g.kernel_width + own[0];
  s.x = column * g.stride_x - g.pad_x + tap % g.kernel_width + own[plane];
  s.inside = s.y > -1 && s.x > -1 && s.y < g.height && s.x < g.width;
  if (!s.inside) return s;
  const float top = std::floor(s.y), left = std::floor(s.x);
  s.fy = s.y - top;
  s.fx = s.x - left;
  s.start = static_cast<std::size_t>(top + 1) * g.row() + static_cast<std::size_t>(left + 1) * g.channels;
  return s;
}

// (C, H, W) -> bordered (H + 2, W + 2, C)
inline void to_channels_last(const Geometry& g, const float* from, float* to) {
  const std::size_t plane = static_cast<std::size_t>(g.height) * g.width;
#pragma omp parallel for schedule(static)
  for (int y = -1; y <= g.height; ++y) {
    float* row = to + (y + 1) * g.row();
    if (y < 0 || y == g.height) {
      std::fill(row, row + g.row(), 0.f);
      continue;
    }
    std::fill(row, row + g.channels, 0.f);
    std::fill(row + g.row() - g.channels, row + g.row(), 0.f);
    for (int start = 0; start < g.width; start += kTile) {
      const int end = std::min(start + kTile, g.width);
      for (int c = 0; c < g.channels; ++c) {
        const float* source = from + c * plane + y * g.width;
        for (int x = start; x < end; ++x) row[(x + 1) * g.channels + c] = source[x];
      }
    }
  }
}

// bordered (H + 2, W + 2, C) -> (C, H, W)
inline void to_channels_first(const Geometry& g, const float* from, float* to) {
  const std::size_t plane = static_cast<std::size_t>(g.height) * g.width;
#pragma omp parallel for schedule(static)
  for (int y = 0; y < g.height; ++y) {
    const float* row = from + (y + 1) * g.row();
    for (int start = 0; start < g.width; start += kTile) {
      const int end = std::min(start + kTile, g.width);
      for (int c = 0; c < g.channels; ++c) {
        float* target = to + c * plane + y * g.width;
        for (int x = start; x < end; ++x) target[x] = row[(x + 1) * g.channels + c];
      }
    }
  }
}

inline void sample_columns(const Geometry& g, const float* map, const float* offset, const float* mask,
                    float* columns) {
  const int positions = g.positions();
#pragma omp parallel for schedule(static)
  for (int position = 0; position < positions; ++position) {
    for (int tap = 0; tap < g.taps; ++tap) {
      const float m = mask[static_cast<std::size_t>(tap) * positions + position];
      float* __restrict out = columns + (static_cast<std::size_t>(position) * g.taps + tap) * g.channels;
      const Sample s = sample(g, offset, position, tap);
      if (!s.inside) {
        // 0, or NaN where an offset or a mask is no number: it must not get lost here
        std::fill(out, out + g.channels, 0.f * (s.y + s.x + m));
        continue;
      }
      const Weights w = weights(s, m);
      const float *upper = map + s.start, *upper_right = upper + g.channels;
      const float *lower = upper + g.row(), *lower_right = lower + g.channels;
#pragma omp simd
      for (int c = 0; c < g.channels; ++c) {
        out[c] = w.w00 * upper[c] + w.w01 * upper_right[c] + w.w10 * lower[c] + w.w11 * lower_right[c];
      }
    }
  }
}

// Gradients of offsets and masks: each has one place to be written at, so positions are parallel
inline void position_gradients(const Geometry& g, const float* map, const float* offset, const float* mask,
                        const float* columns, float* offset_grad, float* mask_grad) {
  const int positions = g.positions();
#pragma omp parallel for schedule(static)
  for (int position = 0; position < positions; ++position) {
    for (int tap = 0; tap < g.taps; ++tap) {
      const std::size_t place = static_cast<std::size_t>(tap) * positions + position;
      const std::size_t place_y = static_cast<std::size_t>(2 * tap) * positions + position;
      const Sample s = sample(g, offset, position, tap);
      float s00 = 0, s01 = 0, s10 = 0, s11 = 0;  // columns' gradient times each of the four pixels
      if (s.inside) {
        const float* grad =
            columns + (static_cast<std::size_t>(position) * g.taps + tap) * g.channels;
        const float *upper = map + s.start, *upper_right = upper + g.channels;
        const float *lower = upper + g.row(), *lower_right = lower + g.channels;
#pragma omp simd reduction(+ : s00, s01, s10, s11)
        for (int c = 0; c < g.channels; ++c) {
          s00 += grad[c] * upper[c];
          s01 += grad[c] * upper_right[c];
          s10 += grad[c] * lower[c];
          s11 += grad[c] * lower_right[c];
        }
      }
      const float fy = s.inside ? s.fy : 0, fx = s.inside ? s.fx : 0;
      mask_grad[place] = (1 - fy) * ((1 - fx) * s00 + fx * s01) + fy * ((1 - fx) * s10 + fx * s11);
      offset_grad[place_y] = mask[place] * ((1 - fx) * (s10 - s00) + fx * (s11 - s01));
      offset_grad[place_y + positions] = mask[place] * ((1 - fy) * (s01 - s00) + fy * (s11 - s10));
    }
  }
}

// Gradient of channels [begin, end) of a bordered map.  Many samples add to the same pixel, but
// never across channels: threads share the channels, and the sum's order does not depend on them.
inline void data_gradient(const Geometry& g, const float* offset, const float* mask, const float* columns,
                   int begin, int end, float* map_grad) {
  const int positions = g.positions();
  for (int position = 0; position < positions; ++position) {
    for (int tap = 0; tap < g.taps; ++tap) {
      const Sample s = sample(g, offset, position, tap);
      if (!s.inside) continue;
      const float m = mask[static_cast<std::size_t>(tap) * positions + position];
      const Weights w = weights(s, m);
      const float* grad = columns + (static_cast<std::size_t>(position) * g.taps + tap) * g.channels;
      float* __restrict upper = map_grad + s.start;
      float* __restrict upper_right = upper + g.channels;
      float* __restrict lower = upper + g.row();
      float* __restrict lower_right = lower + g.channels;
#pragma omp simd
      for (int c = begin; c < end; ++c) {
        upper[c] += w.w00 * grad[c];
        upper_right[c] += w.w01 * grad[c];
        lower[c] += w.w10 * grad[c];
        lower_right[c] += w.w11 * grad[c];
      }
    }
  }
}

}  // namespace yolact_mx

#endif  // YOLACT_MX_DEFORM_IM2COL_H_
