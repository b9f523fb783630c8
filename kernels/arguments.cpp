#include "kernels/arguments.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace hydraulis::arguments {

void require(bool right, const char* what) {
  if (!right) throw std::logic_error(std::string("kernel called with wrong arguments: ") + what);
}

void require_shape(const ConstMatrix& m, std::int64_t rows, std::int64_t columns,
                   const char* what) {
  require(m.rows == rows && m.columns == columns, what);
  require(m.stride >= m.columns || m.rows <= 1, "stride less than the columns");
}

void require_types(DataType type, std::initializer_list<ConstMatrix> others) {
  for (const ConstMatrix& other : others) require(other.type == type, "matrices of unlike types");
}

void require_attention(const AttentionShape& shape, std::span<const AttentionSegment> segments,
                       const ConstMatrix& q, const ConstMatrix& k, const ConstMatrix& v) {
  require(shape.heads > 0 && shape.kv_heads > 0 && shape.head_dim > 0 &&
              shape.heads % shape.kv_heads == 0,
          "attention's heads");
  require_types(q.type, {k, v});
  require_shape(q, q.rows, std::int64_t{shape.heads} * shape.head_dim, "attention's q");
  require_shape(k, k.rows, std::int64_t{shape.kv_heads} * shape.head_dim, "attention's k");
  require_shape(v, k.rows, k.columns, "attention's v");
  bool ordered = true;
  std::int64_t end = 0;
  for (const AttentionSegment& segment : segments) {
    require(segment.query_begin >= 0 && segment.query_count >= 0 &&
                segment.query_count <= q.rows - segment.query_begin && segment.key_begin >= 0 &&
                segment.key_count >= 0 && segment.key_count <= k.rows - segment.key_begin,
            "attention's segment lies outside its matrices");
    require(!segment.causal || segment.query_count == segment.key_count,
            "a causal segment with unequal counts");
    if (segment.query_count == 0) continue;
    ordered = ordered && segment.query_begin >= end;
    end = segment.query_begin + segment.query_count;
  }
  if (ordered) return;
  std::vector<std::pair<std::int64_t, std::int64_t>> stretches;
  for (const AttentionSegment& segment : segments) {
    if (segment.query_count > 0) stretches.emplace_back(segment.query_begin, segment.query_count);
  }
  std::sort(stretches.begin(), stretches.end());
  for (std::size_t i = 1; i < stretches.size(); ++i) {
    require(stretches[i - 1].first + stretches[i - 1].second <= stretches[i].first,
            "a query in two segments of one call");
  }
}

void require_logits(const ConstMatrix& logits, std::int64_t vocabulary) {
  require_shape(logits, logits.rows, logits.columns, "cross entropy's logits");
  require(vocabulary >= 0 && vocabulary <= logits.columns, "cross entropy's vocabulary");
}

void require_step(const OptimizerStep& settings) {
  require(settings.step >= 1, "the optimizer's step counts from 1");
}

void require_stretches(std::span<const OptimizerStretch> stretches, const ConstMatrix& parameter,
                       std::initializer_list<ConstMatrix> others) {
  require(parameter.rows == 1, "the optimizer's matrix is one row");
  for (const ConstMatrix& other : others) {
    require_shape(other, 1, parameter.columns, "the optimizer's matrix");
  }
  std::int64_t end = 0;
  for (const OptimizerStretch& stretch : stretches) {
    require(stretch.begin >= end && stretch.count >= 0 &&
                stretch.count <= parameter.columns - stretch.begin,
            "the optimizer's stretches overlap or lie outside its matrices");
    end = stretch.begin + stretch.count;
  }
}

}  // namespace hydraulis::arguments
