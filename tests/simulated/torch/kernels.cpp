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

#include <set>
#include <string>

extern "C" void simulatedFault(const char* why);

namespace {

using Stack = torch::jit::Stack;

// What scenarios and torch's own object collectives compute; every overload that CUDA has.
const std::set<std::string> NAMES = {
    "abs",         "add",         "add_",        "all",        "amax",        "amin",
    "any",         "arange",      "argmax",      "argmin",     "bitwise_and", "bitwise_not",
    "bitwise_or",  "bitwise_xor", "bmm",         "cat",        "ceil",        "clamp",
    "clamp_min",   "clamp_max",   "div",         "div_",       "dot",         "eq",
    "exp",         "eye",         "fill_",       "flip",       "floor",       "floor_divide",
    "ge",          "gt",          "index",       "isnan",      "le",          "linspace",
    "log",         "logical_and", "logical_not", "logical_or", "logical_xor", "lt",
    "max",         "maximum",     "mean",        "min",        "minimum",     "mm",
    "addmm",       "addmv",       "mul",         "mul_",       "ne",          "neg",
    "pow",         "prod",        "reciprocal",  "remainder",  "roll",        "round",
    "sign",        "sqrt",        "sub",         "sub_",       "sum",         "trunc",
    "where",       "zero_",       "bitwise_left_shift",        "bitwise_right_shift",
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
            work->results[index].toTensor().copy_(work->arguments[index].toTensor());
        }
    } catch (const std::exception& error) {
        simulatedFault(error.what());
    }
}

void launch(Work work, at::Device device) {
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
    const int number = schema.name() == "aten::index" ? 0 : 1;
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
        if (name.name.rfind("aten::", 0) != 0 || NAMES.count(name.name.substr(6)) == 0) continue;
        const auto found = dispatcher.findOp(name);
        if (!found || !found->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) continue;
        const std::string full =
            name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
        library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&boxed>());
    }
    library.impl("copy_", copied);
}
