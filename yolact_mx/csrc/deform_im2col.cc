// Sampling of the modulated deformable convolution (DCNv2), forward and backward, on CPUs.
//
//   yolact_deform_im2col(data (B, C, H, W), offset (B, 2K, Ho, Wo), mask (B, K, Ho, Wo))
//       -> columns (B, Ho, Wo, K * C)
//   columns[b, p, k, :] = mask[b, k, p] * data[b, :, p * stride - pad + tap_k + offset[b, k, p]]
//
// bilinear, zero outside the map; offsets are dy (channel 2k) and dx (2k + 1).  A matrix product
// with the weights (O, K, C) makes it the convolution.

#include "deform_im2col.h"

#include <memory>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "library.h"

using mxnet::ext::MXReturnValue;
using mxnet::ext::MXTensor;
using mxnet::ext::OpResource;
using namespace yolact_mx;
using Buffer = std::unique_ptr<float[]>;

namespace {

// Channels that one thread adds up at least: a cache line, so that threads share none
constexpr int kLine = 16;

Geometry geometry(const Attributes& attributes, const MXTensor& data, const MXTensor& mask) {
  auto integer = [&](const char* name) { return static_cast<int>(number(attributes, name)); };
  const std::vector<int> in(data.shape.begin(), data.shape.end());
  const std::vector<int> out(mask.shape.begin(), mask.shape.end());
  return {in[0],  in[1],  in[2],  in[3],
          out[2], out[3], out[1], integer("kernel_width"),
          integer("stride_y"), integer("stride_x"), integer("pad_y"), integer("pad_x")};
}

int max_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

MXReturnValue parse_attributes(const Attributes& attributes, int* inputs, int* outputs) {
  *inputs = 3;
  *outputs = 1;
  return expect_numbers(attributes, {"kernel_width", "stride_y", "stride_x", "pad_y", "pad_x"});
}

MXReturnValue infer_shape(const Attributes&, std::vector<std::vector<unsigned>>* inputs,
                          std::vector<std::vector<unsigned>>* outputs) {
  const auto &data = (*inputs)[0], &offset = (*inputs)[1], &mask = (*inputs)[2];
  if (data.size() != 4 || offset.size() != 4 || mask.size() != 4) {
    return fail("expected data, offset and mask of four dimensions");
  }
  if (offset[1] != 2 * mask[1]) return fail("expected two offsets a mask");
  if (offset[0] != data[0] || mask[0] != data[0] || offset[2] != mask[2] || offset[3] != mask[3]) {
    return fail("expected offset and mask of one batch size, height and width");
  }
  (*outputs)[0] = {data[0], mask[2], mask[3], mask[1] * data[1]};
  return mxnet::ext::MX_SUCCESS;
}

MXReturnValue forward(const Attributes& attributes, std::vector<MXTensor>* inputs,
                      std::vector<MXTensor>* outputs, const OpResource&) {
  MXTensor &data = (*inputs)[0], &offset = (*inputs)[1], &mask = (*inputs)[2];
  const Geometry g = geometry(attributes, data, mask);
  const Buffer map(new float[g.map()]);
  for (size_t n = 0; n < static_cast<size_t>(g.batch); ++n) {
    to_channels_last(g, data.data<float>() + n * g.image(), map.get());
    sample_columns(g, map.get(), offset.data<float>() + n * 2 * g.samples(),
                   mask.data<float>() + n * g.samples(),
                   (*outputs)[0].data<float>() + n * g.columns());
  }
  return mxnet::ext::MX_SUCCESS;
}

// inputs: gradient of the columns, then those of forward, then its output
MXReturnValue backward(const Attributes& attributes, std::vector<MXTensor>* inputs,
                       std::vector<MXTensor>* outputs, const OpResource&) {
  const float* columns = (*inputs)[0].data<float>();
  MXTensor &data = (*inputs)[1], &offset = (*inputs)[2], &mask = (*inputs)[3];
  const Geometry g = geometry(attributes, data, mask);
  const size_t batch = g.batch;
  const Buffer map(new float[g.map()]);
  for (size_t n = 0; n < batch; ++n) {
    to_channels_last(g, data.data<float>() + n * g.image(), map.get());
    position_gradients(g, map.get(), offset.data<float>() + n * 2 * g.samples(),
                       mask.data<float>() + n * g.samples(), columns + n * g.columns(),
                       (*outputs)[1].data<float>() + n * 2 * g.samples(),
                       (*outputs)[2].data<float>() + n * g.samples());
  }
  // As few parts as keep all threads busy: each of them works out where the samples are
  const int lines = (g.channels + kLine - 1) / kLine;
  const int parts = std::max(1, std::min(lines, (max_threads() + g.batch - 1) / g.batch));
  const Buffer map_grad(new float[batch * g.map()]());
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < g.batch; ++n) {
    for (int part = 0; part < parts; ++part) {
      data_gradient(g, offset.data<float>() + n * 2 * g.samples(),
                    mask.data<float>() + n * g.samples(), columns + n * g.columns(),
                    std::min(g.channels, lines * part / parts * kLine),
                    std::min(g.channels, lines * (part + 1) / parts * kLine),
                    map_grad.get() + n * g.map());
    }
  }
  for (size_t n = 0; n < batch; ++n) {
    to_channels_first(g, map_grad.get() + n * g.map(),
                      (*outputs)[0].data<float>() + n * g.image());
  }
  return mxnet::ext::MX_SUCCESS;
}

}  // namespace

REGISTER_OP(yolact_deform_im2col)
    .setParseAttrs(parse_attributes)
    .setInferType(infer_type)
    .setInferShape(infer_shape)
    .setForward(forward, "cpu")
    .setBackward(backward, "cpu");
