// The work of yolact_fast_nms, on the arrays of one image, without MXNet.
//
// Its figures are those of the composed form, bit for bit: the same sums in the same order, none
// of them fused, and equal scores in the order that MXNet's topk leaves them in.
#ifndef YOLACT_MX_FAST_NMS_H_
#define YOLACT_MX_FAST_NMS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <vector>

namespace yolact_mx {

// Anchors that are transposed, scores and boxes that are compared at a time
constexpr int kAnchors = 16;
constexpr int kScores = 64;

struct Ranked {
  float score;
  int index;
};

inline bool better(const Ranked& a, const Ranked& b) { return a.score > b.score; }

// The anchors that enter the choice of the k best of each class, and their scores
struct Entrants {
  std::vector<int> anchors;         // in their order
  std::unique_ptr<float[]> scores;  // (C, entrants), -1 for those that do not compete
};

// topk's partial sort holds the first k whatever they are, its full sort holds all
inline bool sorts_all(int n, int k) { return 8LL * k > n; }

// Anchors compete whose best class is above the threshold and that hold no NaN.
// probs (N, C)
inline Entrants entrants(const float* probs, int n, int classes, int k, float threshold) {
  std::unique_ptr<bool[]> competes(new bool[n]);
#pragma omp parallel for schedule(static)
  for (int anchor = 0; anchor < n; ++anchor) {
    const float* row = probs + static_cast<std::size_t>(anchor) * classes;
    int above = 0, no_number = 0;
#pragma omp simd reduction(| : above, no_number)
    for (int c = 0; c < classes; ++c) {
      above |= row[c] > threshold;
      no_number |= row[c] != row[c];
    }
    competes[anchor] = above && !no_number;
  }
  Entrants result;
  for (int anchor = 0; anchor < n; ++anchor) {
    if (competes[anchor] || anchor < k || sorts_all(n, k)) result.anchors.push_back(anchor);
  }
  const int count = result.anchors.size();
  result.scores.reset(new float[static_cast<std::size_t>(count) * classes]);
#pragma omp parallel for schedule(static)
  for (int start = 0; start < count; start += kAnchors) {
    const int end = std::min(start + kAnchors, count);
    for (int c = 0; c < classes; ++c) {
      float* target = result.scores.get() + static_cast<std::size_t>(c) * count;
      for (int i = start; i < end; ++i) {
        const std::size_t anchor = result.anchors[i];
        target[i] = competes[anchor] ? probs[anchor * classes + c] : -1.f;
      }
    }
  }
  return result;
}

// The k best of n scores (no NaN), in descending order.  Equal ones come in the order of
// std::sort, if everything is sorted, else of std::partial_sort, as in topk; of the latter these
// are the steps, but what does not get into its heap is passed over many scores at a time.
inline std::vector<Ranked> best_of(const float* scores, int n, int k, bool sort_all) {
  std::vector<Ranked> best;
  const int first = sort_all ? n : k;
  best.reserve(first + 1);
  for (int i = 0; i < first; ++i) best.push_back({scores[i], i});
  if (sort_all) {
    std::sort(best.begin(), best.end(), better);
    best.resize(k);
    return best;
  }
  std::make_heap(best.begin(), best.end(), better);  // the worst in front
  best.emplace_back();
  for (int start = k; start < n; start += kScores) {
    const int end = std::min(start + kScores, n);
    const float worst = best[0].score;
    int any = 0;
#pragma omp simd reduction(| : any)
    for (int i = start; i < end; ++i) any |= scores[i] > worst;
    for (int i = start; any && i < end; ++i) {
      if (!(scores[i] > best[0].score)) continue;
      best[k] = {scores[i], i};
      std::pop_heap(best.begin(), best.end(), better);
    }
  }
  best.pop_back();
  std::sort_heap(best.begin(), best.end(), better);
  return best;
}

// Boxes side by side, so that one is compared with many at a time
struct Corners {
  std::vector<float> x1, y1, x2, y2, area;

  Corners(const float* boxes, const std::vector<Ranked>& chosen) {
    for (auto* side : {&x1, &y1, &x2, &y2, &area}) side->reserve(chosen.size());
    for (const Ranked& one : chosen) {
      const float* box = boxes + 4 * static_cast<std::size_t>(one.index);
      x1.push_back(box[0]);
      y1.push_back(box[1]);
      x2.push_back(box[2]);
      y2.push_back(box[3]);
      area.push_back((box[2] - box[0]) * (box[3] - box[1]));
    }
  }

  // Whether the IoU of box i with any box before it is above the threshold, or no number
  bool overlaps(int i, float threshold) const {
    const float left = x1[i], top = y1[i], right = x2[i], bottom = y2[i], own = area[i];
    int found = 0;
    for (int start = 0; start < i && !found; start += kScores) {
      const int end = std::min(start + kScores, i);
#pragma omp simd reduction(| : found)
      for (int j = start; j < end; ++j) {
        const float width = std::min(right, x2[j]) - std::max(left, x1[j]);
        const float height = std::min(bottom, y2[j]) - std::max(top, y1[j]);
        const float overlap = std::max(width, 0.f) * std::max(height, 0.f);
        found |= !(overlap / (own + area[j] - overlap) <= threshold);
      }
    }
    return found;
  }
};

// -1 for the score of each chosen box (best first) that overlaps a better one
inline void suppress(const float* boxes, float threshold, std::vector<Ranked>* chosen) {
  const Corners corners(boxes, *chosen);
  bool comparable = 0 <= threshold;  // a box that is no number leaves none of its class
  for (float area : corners.area) comparable = comparable && area == area;
  for (std::size_t i = 0; i < chosen->size(); ++i) {
    float& score = (*chosen)[i].score;
    const bool keep = comparable && score >= 0 && std::isfinite(corners.area[i]) &&
                      !corners.overlaps(i, threshold);
    if (!keep) score = -1;
  }
}

}  // namespace yolact_mx

#endif  // YOLACT_MX_FAST_NMS_H_
