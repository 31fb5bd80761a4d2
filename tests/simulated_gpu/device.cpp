// A simulated CUDA device for a torch without CUDA: tensors are on "cuda:0", and their memory is that of the host.
//
// Every operator without a kernel for CUDA comes to `run`, which shows it the same memory as tensors of the CPU. So the
// branches for a GPU run, tensors of two devices raise as on a GPU, and what would wait for the GPU can be counted. It
// says nothing about numerics, time, memory or streams.
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <unordered_set>

using at::Tensor;
using c10::Device;
using c10::DeviceType;
using c10::Storage;
using c10::Stream;

namespace {

const Device GPU(DeviceType::CUDA, 0);
constexpr auto ON_CPU = c10::BackendComponent::CPUBit, ON_GPU = c10::BackendComponent::CUDABit;

// Python's: called with the name of an operator that waits for the device; what is not 0 raises.
int (*on_wait)(const char*) = nullptr;

void wait_for_device(const std::string& name) {
  if (on_wait && on_wait(name.c_str())) TORCH_CHECK(false, "called a synchronizing CUDA operation: ", name);
}

// ---- memory: the context of a storage on the device is a storage of the CPU

at::DataPtr on_device(Storage host) {
  void* data = host.mutable_data();
  return {data, new Storage(std::move(host)), [](void* own) { delete static_cast<Storage*>(own); }, GPU};
}

struct Memory final : c10::Allocator {
  at::DataPtr allocate(size_t size) override {
    return on_device(Storage(Storage::use_byte_size_t(), size, c10::GetCPUAllocator(), true));
  }
  void copy_data(void* to, const void* from, size_t size) const override { default_copy_data(to, from, size); }
} memory;

const Storage& host_of(const Storage& storage) { return *static_cast<Storage*>(storage.data_ptr().get_context()); }

// A tensor of this storage that has all else of `like`; `keys` are those of the device or of the CPU.
Tensor view_of(const Storage& storage, c10::DispatchKeySet keys, const Tensor& like) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, Storage(storage), keys, like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return made;
}

// The same keys, such as those of autograd, for another device.
c10::DispatchKeySet moved(c10::DispatchKeySet keys, c10::BackendComponent from, c10::BackendComponent to) {
  auto autocast = c10::getAutocastRelatedKeySetFromBackend;
  return (keys.remove_backend(from) - autocast(from)) | c10::DispatchKeySet(to) | autocast(to);
}

// ---- operators

template <typename Map>
c10::IValue mapped(const c10::IValue& value, Map map) {
  if (value.isTensor()) return map(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& each : value.toTensorVector()) list.push_back(map(each));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& each : value.toOptionalTensorVector()) {
      list.push_back(each ? std::optional<Tensor>(map(*each)) : std::nullopt);
    }
    return list;
  }
  return value;
}

// The tensors of one call: those of the device, and what the CPU was given in place of them.
struct Call {
  std::vector<std::pair<Tensor, Tensor>> pairs;
  std::vector<Storage> storages;  // of the device
  std::vector<Tensor> others;     // of the CPU

  Tensor to_host(const Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      others.push_back(tensor);
      return tensor;
    }
    for (auto& [own, host] : pairs) {
      if (own.is_same(tensor)) return host;
    }
    storages.push_back(tensor.storage());
    pairs.emplace_back(tensor, view_of(host_of(tensor.storage()), moved(tensor.key_set(), ON_GPU, ON_CPU), tensor));
    return pairs.back().second;
  }

  c10::IValue to_host(const c10::IValue& argument) {
    if (argument.isDevice() && argument.toDevice().is_cuda()) return Device(DeviceType::CPU);
    if (argument.isStorage() && argument.toStorage().device().is_cuda()) {
      storages.push_back(argument.toStorage());
      return host_of(storages.back());
    }
    return mapped(argument, [this](const Tensor& tensor) { return to_host(tensor); });
  }

  Storage device_storage(const Tensor& host) {
    for (auto& own : storages) {
      if (host.storage().is_alias_of(host_of(own))) return own;
    }
    return Storage(Storage::use_byte_size_t(), host.storage().nbytes(), on_device(host.storage()), &memory, true);
  }

  Tensor to_device(const Tensor& host) {
    if (!host.defined()) return host;
    for (auto& [own, other] : pairs) {
      if (other.is_same(host)) return own;
    }
    return view_of(device_storage(host), moved(host.key_set(), ON_CPU, ON_GPU), host);
  }

  // What `resize_`, `set_` and an `out=` of another shape have changed.
  void update() {
    for (auto& [own, host] : pairs) {
      if (!host.storage().is_alias_of(host_of(own.storage()))) {
        own.unsafeGetTensorImpl()->set_storage_keep_dtype(device_storage(host));
      } else if (auto* storage = own.storage().unsafeGetStorageImpl(); storage->nbytes() != host.storage().nbytes()) {
        storage->set_data_ptr_noswap(on_device(host.storage()));
        storage->set_nbytes(host.storage().nbytes());
      }
      own.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
    }
  }
};

// Their results, or the shapes of their results, are read on the host.
const std::unordered_set<std::string> WAITS = {
    "aten::_local_scalar_dense", "aten::_unique2", "aten::bincount",          "aten::equal",
    "aten::masked_select",       "aten::nonzero",  "aten::repeat_interleave", "aten::unique_consecutive",
    "aten::unique_dim",
};

bool copies_and_waits(const torch::jit::Stack& arguments) {
  const Tensor &to = arguments[0].toTensor(), &from = arguments[1].toTensor();
  return to.device() != from.device() && from.numel() && !arguments[2].toBool();
}

// Indices of the CPU are copied, and a mask becomes indices, unless one value is written wherever it is true.
bool writes_and_waits(const torch::jit::Stack& arguments) {
  const Tensor& values = arguments[2].toTensor();
  for (const std::optional<Tensor>& index : arguments[1].toOptionalTensorVector()) {
    if (!index || !index->defined()) continue;
    bool is_mask = index->scalar_type() == at::kBool || index->scalar_type() == at::kByte;
    if (index->is_cpu() || (is_mask && !(values.is_cpu() && values.numel() == 1))) return true;
  }
  return false;
}

void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.schema().name();
  size_t count = op.schema().arguments().size();
  torch::jit::Stack arguments(stack->end() - count, stack->end());
  bool is_copy = name == "aten::copy_", is_write = name == "aten::_index_put_impl_";
  bool is_indexing = is_write || name == "aten::index";
  if (WAITS.count(name) || (is_copy && copies_and_waits(arguments)) || (is_write && writes_and_waits(arguments))) {
    wait_for_device(name);
  }

  Call call;
  stack->resize(stack->size() - count);
  for (const auto& argument : arguments) stack->push_back(call.to_host(argument));
  bool takes_numbers = op.hasTag(at::Tag::pointwise) || is_write || name == "aten::fill_";
  for (const Tensor& other : call.others) {
    bool is_number = other.unsafeGetTensorImpl()->is_wrapped_number() || (takes_numbers && other.dim() == 0);
    bool is_index = is_indexing && !other.is_same(arguments[0].toTensor());  // it is copied to the device
    if (is_write) is_index &= !other.is_same(arguments[2].toTensor());
    TORCH_CHECK(
        is_copy || is_number || is_index || call.pairs.empty(),
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (", name, ")");
  }
  {
    at::AutoDispatchBelowADInplaceOrView no_gradients;  // autograd has recorded the operator already
    op.callBoxed(stack);
  }
  call.update();
  for (size_t place = stack->size() - op.schema().returns().size(); place < stack->size(); ++place) {
    (*stack)[place] = mapped((*stack)[place], [&](const Tensor& tensor) { return call.to_device(tensor); });
  }
}

// The choice of the CPU is a kernel of its own.
void plain_attention(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  stack->resize(stack->size() - op.schema().arguments().size());
  stack->emplace_back(int64_t(0));
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&run>());  // otherwise there is one for all devices
  library.impl("_fused_sdp_choice", torch::CppFunction::makeFromBoxedFunction<&plain_attention>());
}

// ---- the device

struct Guard final : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device exchangeDevice(Device) const override { return GPU; }
  Device getDevice() const override { return GPU; }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, GPU); }
  Stream getNewStream(Device, int) const override { return Stream(Stream::DEFAULT, GPU); }
  Stream exchangeStream(Stream) const noexcept override { return Stream(Stream::DEFAULT, GPU); }
  void record(void**, const Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace

namespace at {
// Built without CUDA, torch has no accelerator: these take the place of its own, since LD_PRELOAD comes first.
namespace accelerator {
std::optional<c10::DeviceType> getAccelerator(bool) { return DeviceType::CUDA; }
bool isAccelerator(c10::DeviceType type) { return type == DeviceType::CUDA; }
}  // namespace accelerator

struct CUDAHooks : CUDAHooksInterface {
  CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  int getNumGPUs() const override { return 1; }
  bool isPinnedPtr(const void*) const override { return false; }
  Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
};
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at

extern "C" void call_on_wait(int (*function)(const char*)) { on_wait = function; }
