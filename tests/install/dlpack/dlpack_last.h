// gradloom's header, then the official one of version 1.1, whose guard is set by then: what its users name is there.
#include <gradloom/gradloom.h>
#include "dlpack.h"
#if DLPACK_MAJOR_VERSION != 1 || DLPACK_MINOR_VERSION < 1
#error "DLPACK_VERSION"
#endif
DLPACK_EXTERN_C DLPACK_DLL int last(DLManagedTensorVersioned* x);
int last(DLManagedTensorVersioned* x) {
  const DLPackVersion version = x->version;
  if (version.major != DLPACK_MAJOR_VERSION || (x->flags & DLPACK_FLAG_BITMASK_READ_ONLY)) x->deleter(x);
  return x->dl_tensor.device.device_type == kDLROCM || x->dl_tensor.dtype.code == kDLFloat8_e4m3fn;
}
