// Fast NMS (YOLACT section 3.4) on CPUs, without gradient.
//
//   yolact_fast_nms(probs (B, N, C) without the background, boxes (B, N, 4) xyxy)
//       -> scores, classes, anchor, each (B, D), D = min(max_detections, min(top_k, N) * C)
//
// An anchor whose best class is above score_threshold competes in every class.  Of the top_k best
// of a class those are left whose IoU with no better one of them is above iou_threshold; of these
// the best D of all classes are returned, in descending order.  Rows that hold no detection have
// the score -1.

#include "fast_nms.h"

#include <algorithm>
#include <string>
#include <vector>

#include "library.h"

using mxnet::ext::MXReturnValue;
using mxnet::ext::MXTensor;
using mxnet::ext::OpResource;
using namespace yolact_mx;

namespace {

// Candidates of a class, of N anchors
int candidates(const Attributes& attributes, size_t anchors) {
  return std::min(number(attributes, "top_k"), static_cast<double>(anchors));
}

MXReturnValue parse_attributes(const Attributes& attributes, int* inputs, int* outputs) {
  *inputs = 2;
  *outputs = 3;
  const MXReturnValue result = expect_numbers(
      attributes, {"top_k", "max_detections", "score_threshold", "iou_threshold"});
  if (result != mxnet::ext::MX_SUCCESS) return result;
  for (const char* name : {"top_k", "max_detections"}) {
    if (!(number(attributes, name) >= 1)) return fail(std::string(name) + ": expected at least 1");
  }
  return result;
}

MXReturnValue infer_shape(const Attributes& attributes, std::vector<std::vector<unsigned>>* inputs,
                          std::vector<std::vector<unsigned>>* outputs) {
  const auto &probs = (*inputs)[0], &boxes = (*inputs)[1];
  if (probs.size() != 3 || boxes.size() != 3) {
    return fail("expected probs and boxes of three dimensions");
  }
  if (boxes[2] != 4) return fail("expected four numbers a box");
  if (probs[0] != boxes[0] || probs[1] != boxes[1]) {
    return fail("expected probs and boxes of one batch size and number of anchors");
  }
  const double all = static_cast<double>(candidates(attributes, probs[1])) * probs[2];
  const unsigned detections = std::min(number(attributes, "max_detections"), all);
  outputs->assign(3, {probs[0], detections});
  return mxnet::ext::MX_SUCCESS;
}

MXReturnValue forward(const Attributes& attributes, std::vector<MXTensor>* inputs,
                      std::vector<MXTensor>* outputs, const OpResource&) {
  const auto& shape = (*inputs)[0].shape;
  const int batch = shape[0], anchors = shape[1], classes = shape[2];
  const int top = candidates(attributes, anchors), detections = (*outputs)[0].shape[1];
  const float score_threshold = number(attributes, "score_threshold");
  const float iou_threshold = number(attributes, "iou_threshold");
  const float* boxes = (*inputs)[1].data<float>();
  std::vector<Entrants> images;
  for (int n = 0; n < batch; ++n) {
    const size_t start = static_cast<size_t>(n) * anchors * classes;
    images.push_back(
        entrants((*inputs)[0].data<float>() + start, anchors, classes, top, score_threshold));
  }
  // (B, C, top)
  std::vector<float> scores(static_cast<size_t>(batch) * classes * top);
  std::vector<int> chosen(scores.size());
#pragma omp parallel for schedule(dynamic)
  for (int group = 0; group < batch * classes; ++group) {
    const Entrants& image = images[group / classes];
    const size_t count = image.anchors.size();
    auto best = best_of(image.scores.get() + group % classes * count, count, top,
                        sorts_all(anchors, top));
    for (Ranked& one : best) one.index = image.anchors[one.index];
    suppress(boxes + static_cast<size_t>(group / classes) * anchors * 4, iou_threshold, &best);
    for (int i = 0; i < top; ++i) {
      scores[static_cast<size_t>(group) * top + i] = best[i].score;
      chosen[static_cast<size_t>(group) * top + i] = best[i].index;
    }
  }
  const int all = classes * top;
#pragma omp parallel for schedule(static)
  for (int n = 0; n < batch; ++n) {
    const size_t start = static_cast<size_t>(n) * all;
    const auto best =
        best_of(scores.data() + start, all, detections, sorts_all(all, detections));
    for (int i = 0; i < detections; ++i) {
      const size_t place = static_cast<size_t>(n) * detections + i;
      (*outputs)[0].data<float>()[place] = best[i].score;
      (*outputs)[1].data<float>()[place] = best[i].index / top;
      (*outputs)[2].data<float>()[place] = chosen[start + best[i].index];
    }
  }
  return mxnet::ext::MX_SUCCESS;
}

// Only says so; without it no hybridized block can hold the operator
MXReturnValue backward(const Attributes&, std::vector<MXTensor>*, std::vector<MXTensor>*,
                       const OpResource&) {
  return fail("has no gradient");
}

}  // namespace

REGISTER_OP(yolact_fast_nms)
    .setParseAttrs(parse_attributes)
    .setInferType(infer_type)
    .setInferShape(infer_shape)
    .setForward(forward, "cpu")
    .setBackward(backward, "cpu");
