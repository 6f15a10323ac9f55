// Kernels for torch's own arithmetic on the simulated GPUs: torch's for the CPU, in the stream's order.
//
// What a call returns is allocated when it is called, with the shape that a rehearsal on other numbers
// has; the values are computed when the stream comes to it. Communication has no part in this.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/copy_native.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

extern "C" void simulatedFault(const char* why);

namespace {

using Stack = torch::jit::Stack;

// What scenarios, models and torch's own object collectives compute; every overload that CUDA has.
const std::set<std::string> NAMES = {
    "abs", "add", "add_", "addcdiv", "addcdiv_", "addcmul", "addcmul_", "addmm", "addmm_", "addmv",
    "all", "amax", "amin", "any", "arange", "argmax", "argmin", "baddbmm", "bitwise_and",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bmm",
    "cat", "ceil", "clamp", "clamp_max", "clamp_min", "cos", "cumprod", "cumsum", "div", "div_",
    "dot", "embedding", "embedding_dense_backward", "eq", "exp", "expm1", "eye", "fill_", "flip",
    "floor", "floor_divide", "gather", "ge", "gelu", "gelu_backward", "gt", "index", "index_select",
    "isfinite", "isinf", "isneginf", "masked_fill", "masked_fill_", "isposinf", "split_with_sizes_copy", "_chunk_cat", "isnan", "l1_loss", "le", "lerp", "lerp_", "linalg_vector_norm",
    "linspace", "log", "log1p", "log2", "_log_softmax", "_log_softmax_backward_data", "logical_and",
    "logical_not", "logical_or", "logical_xor", "lt", "max", "maximum", "mean", "min", "minimum",
    "mm", "mse_loss", "mse_loss_backward", "mul", "mul_", "native_layer_norm",
    "native_layer_norm_backward", "ne", "neg", "nll_loss_backward", "nll_loss_forward", "pow",
    "prod", "reciprocal", "reciprocal_", "relu", "relu_", "remainder", "roll", "round", "rsqrt",
    "rsub", "sgn", "sigmoid", "sigmoid_backward", "sign", "silu", "silu_backward", "sin",
    "_softmax", "_softmax_backward_data", "sqrt", "sqrt_", "sub", "sub_", "sum", "tanh",
    "tanh_backward", "threshold_backward", "tril", "triu", "trunc", "where", "zero_",
};

// Lists of tensors, as optimizers and FSDP take them: torch's own loop over calls on one tensor.
const std::string LISTS = "_foreach_";

// What takes indices, which are rehearsed with the first.
const std::set<std::string> INDEXED = {
    "aten::index",  "aten::index_select",     "aten::gather",           "aten::embedding_dense_backward",
    "aten::embedding", "aten::nll_loss_forward", "aten::nll_loss_backward",
};

bool on_gpu(const at::Tensor& tensor) { return tensor.defined() && tensor.is_cuda(); }

// A value of an operator's stack with each of its tensors changed.
template <typename Change>
c10::IValue changed(const c10::IValue& value, const Change& change) {
    if (value.isTensor()) return change(value.toTensor());
    if (value.isTensorList()) {
        c10::List<at::Tensor> all;
        for (const at::Tensor& each : value.toTensorVector()) all.push_back(change(each));
        return all;
    }
    if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> all;
        for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector()) {
            all.push_back(each ? std::optional<at::Tensor>(change(*each)) : std::nullopt);
        }
        return all;
    }
    return value;
}

template <typename Change>
Stack all_changed(const Stack& values, const Change& change) {
    Stack all;
    for (const c10::IValue& value : values) all.push_back(changed(value, change));
    return all;
}

// Numbers of the same shape to rehearse with: no division by them fails, and no index is beyond.
at::Tensor rehearsal(const at::Tensor& tensor, int number) {
    if (!on_gpu(tensor)) return tensor;
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU))
        .fill_(number);
}

// The device's memory as the host sees it: no copy, and nothing that keeps it alive.
at::Tensor as_host(const at::Tensor& tensor) {
    if (!on_gpu(tensor)) return tensor;
    return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                         tensor.options().device(at::kCPU));
}

struct Work {
    c10::OperatorHandle op;
    Stack arguments;
    Stack results;
};

void run(void* argument) {
    std::unique_ptr<Work> work(static_cast<Work*>(argument));
    at::AutoDispatchBelowADInplaceOrView below;
    try {
        work->op.callBoxed(&work->arguments);
        for (size_t index = 0; index < work->results.size(); ++index) {
            const at::Tensor result = work->results[index].toTensor();
            if (result.defined()) result.copy_(work->arguments[index].toTensor());
        }
    } catch (const std::exception& error) {
        simulatedFault(error.what());
    }
}

// With CUDA_MODULE_LOADING=LAZY a kernel that is used for the first time is loaded once the device rests,
// as CUDA's guide warns that it may be: behind a call that hangs it never is. On an H200 (driver 580) no
// case of the corpus waited so.
void load(const c10::OperatorHandle& op) {
    const char* loading = std::getenv("CUDA_MODULE_LOADING");
    if (loading == nullptr || std::string(loading) != "LAZY") return;
    static std::mutex mutex;
    static std::set<std::string> loaded;
    {
        std::lock_guard<std::mutex> hold(mutex);
        if (!loaded.insert(toString(op.operator_name())).second) return;
    }
    cudaDeviceSynchronize();
}

void launch(Work work, at::Device device) {
    load(work.op);
    const auto stream = c10::cuda::getCurrentCUDAStream(device.index());
    cudaLaunchHostFunc(stream, run, new Work(std::move(work)));
}

at::Device device_of(const Stack& arguments) {
    at::Device found = at::kCPU;
    for (const c10::IValue& each : arguments) {
        changed(each, [&](const at::Tensor& tensor) {
            if (on_gpu(tensor)) found = tensor.device();
            return tensor;
        });
    }
    return found;
}

void boxed(const c10::OperatorHandle& op, Stack* stack) {
    const auto& schema = op.schema();
    const size_t count = schema.arguments().size();
    const Stack arguments(stack->end() - static_cast<ptrdiff_t>(count), stack->end());
    stack->resize(stack->size() - count);
    const at::Device device = device_of(arguments);
    const int number = static_cast<int>(1 - INDEXED.count(schema.name()));
    Stack shaped = all_changed(arguments, [&](const at::Tensor& each) { return rehearsal(each, number); });
    const Stack rehearsed = shaped;  // those that are written may have been given another shape
    op.callBoxed(&shaped);
    Stack results;
    bool fresh = false;
    size_t written = 0;
    for (size_t index = 0; index < schema.returns().size(); ++index) {
        const bool alias = schema.returns()[index].alias_info() != nullptr;
        if (!alias) {
            const at::Tensor like = shaped[index].toTensor();
            fresh = true;
            if (!like.defined()) {  // a gradient that was not asked for
                results.emplace_back(like);
                continue;
            }
            results.emplace_back(at::empty_strided(like.sizes(), like.strides(), like.options().device(device)));
            continue;
        }
        for (; written < count; ++written) {
            const auto* info = schema.arguments()[written].alias_info();
            if (info != nullptr && info->isWrite()) break;
        }
        const at::Tensor out = arguments[written].toTensor();
        const at::Tensor like = rehearsed[written++].toTensor();
        if (out.sizes() != like.sizes()) out.resize_(like.sizes());
        results.emplace_back(out);
    }
    Stack to = fresh ? all_changed(results, as_host) : Stack{};
    launch({op, all_changed(arguments, as_host), std::move(to)}, device);
    stack->insert(stack->end(), results.begin(), results.end());
}

bool returns_tensors(const c10::OperatorHandle& op) {
    for (const c10::Argument& each : op.schema().returns()) {
        if (each.type()->kind() != c10::TypeKind::TensorType) return false;
    }
    return true;
}

void looped(const c10::OperatorHandle& op, Stack* stack) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
}

// Within a GPU, what is more than moving bytes is a kernel; the rest is torch's own way.
at::Tensor& copied(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
    const bool within = on_gpu(to) && on_gpu(from) && to.device() == from.device();
    const bool bytes = to.dtype() == from.dtype() && to.sizes() == from.sizes() &&
                       to.strides() == from.strides() && to.is_non_overlapping_and_dense() &&
                       to.is_conj() == from.is_conj() && to.is_neg() == from.is_neg();
    if (!within || bytes) return at::native::copy_(to, from, non_blocking);
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
    launch({op, {as_host(to), as_host(from), false}, {}}, to.device());
    return to;
}

// That kernels take the place of others is what is meant.
struct Quiet : c10::WarningHandler {
    void process(const c10::Warning&) override {}
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
    Quiet quiet;
    const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
        if (name.name.rfind("aten::", 0) != 0) continue;
        const std::string own = name.name.substr(6);
        const bool list = own.rfind(LISTS, 0) == 0;
        if (!list && NAMES.count(own) == 0) continue;
        const auto found = dispatcher.findOp(name);
        if (!found || !found->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) continue;
        const auto loop = c10::DispatchKey::CompositeExplicitAutograd;
        if (list && !found->hasKernelForDispatchKey(loop)) continue;
        if (!list && !returns_tensors(*found)) continue;
        const std::string full =
            name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
        library.impl(full.c_str(), list ? torch::CppFunction::makeFromBoxedFunction<&looped>()
                                        : torch::CppFunction::makeFromBoxedFunction<&boxed>());
    }
    library.impl("copy_", copied);
}
