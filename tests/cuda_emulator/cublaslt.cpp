#include "tests/cuda_emulator/include/cublasLt.h"

#include <cstring>
#include <mutex>
#include <vector>

#include "tests/cuda_emulator/faults.h"
#include "tests/cuda_emulator/include/cuda_bf16.h"
#include "tests/cuda_emulator/memory.h"
#include "tests/cuda_emulator/streams.h"

// NOLINTBEGIN(readability-identifier-naming): cuBLASLt's names

struct cublasLtContext {};

struct EmulatedMatmul {
  cublasOperation_t of_a = CUBLAS_OP_N;
  cublasOperation_t of_b = CUBLAS_OP_N;
};

/// Columns side by side, `leading` elements apart.
struct EmulatedLayout {
  cudaDataType_t type = CUDA_R_32F;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::int64_t leading = 0;

  std::size_t element_bytes() const { return type == CUDA_R_16BF ? 2 : 4; }
  std::size_t column_bytes() const { return rows * element_bytes(); }
  const char* column(const void* data, std::uint64_t j) const {
    return static_cast<const char*>(data) +
           static_cast<std::int64_t>(j) * leading * static_cast<std::int64_t>(element_bytes());
  }
};

struct EmulatedPreference {
  std::size_t workspace_bytes = 0;
};

namespace {

using emulator::AccessKind;
using Guard = std::lock_guard<std::recursive_mutex>;

/// A workspace that products of several columns take, so that it is seen to be there.
constexpr std::size_t kWorkspaceBytes = 4096;

double element(const EmulatedLayout& layout, const void* data, std::uint64_t i, std::uint64_t j) {
  const char* column = layout.column(data, j);
  if (layout.type == CUDA_R_32F) {
    float value = 0;
    std::memcpy(&value, column + 4 * i, 4);
    return static_cast<double>(value);
  }
  __nv_bfloat16 value;
  std::memcpy(&value, column + 2 * i, 2);
  return static_cast<double>(__bfloat162float(value));
}

void set_element(const EmulatedLayout& layout, void* data, std::uint64_t i, std::uint64_t j,
                 float value) {
  char* column = const_cast<char*>(layout.column(data, j));
  if (layout.type == CUDA_R_32F) {
    std::memcpy(column + 4 * i, &value, 4);
  } else {
    const __nv_bfloat16 rounded = __float2bfloat16_rn(value);
    std::memcpy(column + 2 * i, &rounded, 2);
  }
}

bool touch_all(const EmulatedLayout& layout, const void* data, AccessKind kind) {
  for (std::uint64_t j = 0; j < layout.columns; ++j) {
    if (!emulator::touch_device(layout.column(data, j), layout.column_bytes(), kind,
                                "cublasLtMatmul")) {
      return false;
    }
  }
  return true;
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown status";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t,
                                        cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *description = new EmulatedMatmul;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete description;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  if (bytes != sizeof(cublasOperation_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(attribute == CUBLASLT_MATMUL_DESC_TRANSA ? &description->of_a : &description->of_b,
              value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading_dimension) {
  *layout = new EmulatedLayout{type, rows, columns, leading_dimension};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new EmulatedPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  const bool of_workspace = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  if (bytes != (of_workspace ? sizeof(std::size_t) : sizeof(std::uint32_t))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (of_workspace) std::memcpy(&preference->workspace_bytes, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int asked,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  const auto rows = [](const EmulatedLayout& l, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? l.rows : l.columns;
  };
  const auto columns = [](const EmulatedLayout& l, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? l.columns : l.rows;
  };
  for (const EmulatedLayout* l : {a, b, c, d}) {
    const auto leading = static_cast<std::uint64_t>(l->leading);
    if (l->rows == 0 || l->columns == 0 || leading < l->rows) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (asked < 1 || rows(*a, description->of_a) != d->rows ||
      columns(*b, description->of_b) != d->columns ||
      columns(*a, description->of_a) != rows(*b, description->of_b) || c->rows != d->rows ||
      c->columns != d->columns) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (a->type != b->type || c->type != d->type ||
      (a->type == CUDA_R_32F && d->type != CUDA_R_32F)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  results[0] = {};
  results[0].workspaceSize =
      d->columns > 1 && preference->workspace_bytes >= kWorkspaceBytes ? kWorkspaceBytes : 0;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t*,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  const Guard guard(emulator::lock());
  if (!emulator::known(stream)) return CUBLAS_STATUS_INVALID_VALUE;
  if (emulator::faulty()) return CUBLAS_STATUS_EXECUTION_FAILED;
  // Everything but the matrices' contents is taken now.
  emulator::enqueue(
      *stream, "cublasLtMatmul",
      [=, op = *description, la = *layout_a, lb = *layout_b, lc = *layout_c, ld = *layout_d,
       scale = static_cast<double>(*static_cast<const float*>(alpha)),
       keep = static_cast<double>(*static_cast<const float*>(beta))] {
        if (workspace_bytes > 0 &&
            !emulator::touch_device(workspace, workspace_bytes, AccessKind::write,
                                    "cublasLtMatmul's workspace")) {
          return;
        }
        if (!touch_all(la, a, AccessKind::read) || !touch_all(lb, b, AccessKind::read)) return;
        if (keep != 0 && !touch_all(lc, c, AccessKind::read)) return;
        if (!touch_all(ld, d, AccessKind::write)) return;
        const std::uint64_t depth = op.of_a == CUBLAS_OP_N ? la.columns : la.rows;
        std::vector<double> column(depth);
        for (std::uint64_t j = 0; j < ld.columns; ++j) {
          for (std::uint64_t k = 0; k < depth; ++k) {
            column[k] = op.of_b == CUBLAS_OP_N ? element(lb, b, k, j) : element(lb, b, j, k);
          }
          for (std::uint64_t i = 0; i < ld.rows; ++i) {
            double sum = 0;
            for (std::uint64_t k = 0; k < depth; ++k) {
              sum += column[k] *
                     (op.of_a == CUBLAS_OP_N ? element(la, a, i, k) : element(la, a, k, i));
            }
            sum *= scale;
            if (keep != 0) sum += keep * element(lc, c, i, j);
            set_element(ld, d, i, j, static_cast<float>(sum));
          }
        }
      });
  return CUBLAS_STATUS_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
