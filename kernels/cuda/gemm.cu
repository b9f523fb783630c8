#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <compare>
#include <map>
#include <string>

#include "kernels/cuda/gemm.cuh"

namespace hydraulis::cuda {

namespace {

void check_blas(cublasStatus_t status, const std::string& call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CudaError(call + ": " + cublasLtGetStatusString(status));
}
#define HYDRAULIS_BLAS_CHECK(CALL) check_blas((CALL), #CALL)

cudaDataType_t data_type(DataType type) {
  return type == DataType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// One of cuBLASLt's objects.
template <typename T, cublasStatus_t (*destroy)(T)>
class Handle {
 public:
  Handle() = default;
  ~Handle() {
    if (value_ != nullptr) destroy(value_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  T* address() { return &value_; }
  T get() const { return value_; }

 private:
  T value_ = nullptr;
};
using Operation = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// What decides the algorithm of a product.
struct Shape {
  bool transpose_a, transpose_b;
  DataType type, type_of_c;
  std::int64_t m, n, k, stride_a, stride_b, stride_c;
  std::uint32_t align_a, align_b, align_c;  // bytes
  auto operator<=>(const Shape&) const = default;
};

/// The power of two that the address is a multiple of; beyond 256 it makes no difference.
std::uint32_t alignment(const void* data) {
  const auto address = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(data) | 256U);
  return 1U << static_cast<unsigned>(std::countr_zero(address));
}

/// cuBLASLt's matrices have their columns side by side: a matrix of ours, read so, is its
/// transpose. c = op(a)·op(b) is therefore asked for as cᵀ = op(b)ᵀ·op(a)ᵀ.
void describe(Layout& layout, DataType type, std::int64_t rows, std::int64_t columns,
              std::int64_t stride) {
  HYDRAULIS_BLAS_CHECK(cublasLtMatrixLayoutCreate(layout.address(), data_type(type),
                                                  static_cast<std::uint64_t>(columns),
                                                  static_cast<std::uint64_t>(rows), stride));
}

/// A product of some shape, ready to be run.
struct Plan {
  Operation operation;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;

  Plan(cublasLtHandle_t library, const Shape& s) {
    HYDRAULIS_BLAS_CHECK(
        cublasLtMatmulDescCreate(operation.address(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t of_a = s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t of_b = s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    HYDRAULIS_BLAS_CHECK(cublasLtMatmulDescSetAttribute(
        operation.get(), CUBLASLT_MATMUL_DESC_TRANSA, &of_b, sizeof of_b));
    HYDRAULIS_BLAS_CHECK(cublasLtMatmulDescSetAttribute(
        operation.get(), CUBLASLT_MATMUL_DESC_TRANSB, &of_a, sizeof of_a));
    describe(a, s.type, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.stride_a);
    describe(b, s.type, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.stride_b);
    describe(c, s.type_of_c, s.m, s.n, s.stride_c);

    Preference preference;
    HYDRAULIS_BLAS_CHECK(cublasLtMatmulPreferenceCreate(preference.address()));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      HYDRAULIS_BLAS_CHECK(
          cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::size_t{32} << 20);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s.align_b);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s.align_a);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s.align_c);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s.align_c);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    HYDRAULIS_BLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(library, operation.get(), b.get(), a.get(),
                                                        c.get(), c.get(), preference.get(), 1,
                                                        &found, &count));
    if (count == 0) check_blas(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic");
    algorithm = found.algo;
    workspace_bytes = found.workspaceSize;
  }
};

/// Plans that are kept: micro-batches differ in their number of tokens.
constexpr std::size_t kMostPlans = 4096;

}  // namespace

struct Gemm::Library {
  Library() { HYDRAULIS_BLAS_CHECK(cublasLtCreate(&handle)); }
  ~Library() {
    plans.clear();
    cublasLtDestroy(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const Plan& plan(const Shape& shape) {
    auto found = plans.find(shape);
    if (found == plans.end()) {
      if (plans.size() >= kMostPlans) plans.clear();
      found = plans.try_emplace(shape, handle, shape).first;
    }
    return found->second;
  }

  cublasLtHandle_t handle = nullptr;
  std::map<Shape, Plan> plans;
};

Gemm::Gemm(CudaDevice& device) : device_(device), library_(std::make_unique<Library>()) {}
Gemm::~Gemm() = default;

void Gemm::run(bool transpose_a, bool transpose_b, double alpha, ConstMatrix a, ConstMatrix b,
               double beta, Matrix c, Stream& stream) {
  const auto stride_of = [](const ConstMatrix& m) { return std::max(m.stride, m.columns); };
  const Shape shape{transpose_a,
                    transpose_b,
                    a.type,
                    c.type,
                    c.rows,
                    c.columns,
                    transpose_a ? a.rows : a.columns,
                    stride_of(a),
                    stride_of(b),
                    stride_of(c),
                    alignment(a.data),
                    alignment(b.data),
                    alignment(c.data)};
  const Plan& plan = library_->plan(shape);
  const DeviceBuffer workspace(device_, static_cast<std::int64_t>(plan.workspace_bytes));
  const auto alpha32 = static_cast<float>(alpha);
  const auto beta32 = static_cast<float>(beta);
  HYDRAULIS_BLAS_CHECK(cublasLtMatmul(
      library_->handle, plan.operation.get(), &alpha32, b.data, plan.b.get(), a.data, plan.a.get(),
      &beta32, c.data, plan.c.get(), c.data, plan.c.get(), &plan.algorithm, workspace.data(),
      plan.workspace_bytes, device_.use(stream, {a.data, b.data, c.data, workspace.data()})));
}

}  // namespace hydraulis::cuda
