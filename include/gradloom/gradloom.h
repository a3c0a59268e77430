#ifndef GRADLOOM_H
#define GRADLOOM_H
/* gradloom's C interface, plain C99: run a gradient op by name on DLPack tensors, or compile it once and call the
 * handle.
 *
 * Every function may be called from any thread, objects included; only destroying an object must be the last use of it.
 * No exception and no abort crosses this interface: a function that can fail returns a status, and
 * gradloom_last_error() then says in one line what was got and what was allowed. A null pointer where none is allowed
 * is GRADLOOM_INVALID_ARGUMENT; a destroy function takes null and does nothing. After an error, pointers to results are
 * set to null.
 *
 * Tensors are dense or strided, of rank 0 to 16, in host memory (device types 1 and 3); with target cuda in the
 * device's (type 2). Inputs are borrowed for the
 * call. A null entry of an array of tensors is an optional input that is not given, or an output that is not asked for.
 *
 * The library may be unloaded (dlclose) once every object is destroyed, every output's deleter was called and no thread
 * is in a call. Nothing of it stays: neither memory nor threads. The libraries it uses may stay loaded: LLVM's always
 * does.
 */
#include <stdint.h>

/* DLTensor and DLManagedTensor. The official header of DLPack may be included before or after. */
#ifndef DLPACK_DLPACK_H_
#include "gradloom/dlpack.h"
#endif

#ifndef GRADLOOM_API
#if defined(__GNUC__) || defined(__clang__)
#define GRADLOOM_API __attribute__((visibility("default")))
#else
#define GRADLOOM_API
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gradloom_status {
  GRADLOOM_OK = 0,
  GRADLOOM_INVALID_ARGUMENT = 1,   /* a bad argument: null, rank, dims, dtype, attribute, overlap */
  GRADLOOM_OUT_OF_RANGE = 2,       /* a bad index value inside an index tensor */
  GRADLOOM_UNSUPPORTED = 3,        /* a valid request that this build or machine cannot do; an op that does not exist */
  GRADLOOM_RESOURCE_EXHAUSTED = 4, /* out of memory or over a stated limit */
  GRADLOOM_COMPILE_FAILED = 5,     /* the compiler refused; the message holds its log */
  GRADLOOM_DEVICE_ERROR = 6,       /* a driver or device is missing or failed */
  GRADLOOM_INTERNAL = 7            /* a fault of gradloom itself */
} gradloom_status;

typedef enum gradloom_target {
  GRADLOOM_TARGET_AUTOMATIC = 0,   /* llvm where it is built in, else interpreter */
  GRADLOOM_TARGET_LLVM = 1,        /* this machine's CPU */
  GRADLOOM_TARGET_INTERPRETER = 2, /* the reference executor */
  GRADLOOM_TARGET_CUDA = 3,        /* an NVIDIA GPU: tensors in its memory, but for shape-like ones */
  GRADLOOM_TARGET_CUDA_HOST = 4    /* the code for a GPU, run by the CPU: for tests */
} gradloom_target;

/* When an out-of-range index found on a GPU is reported: by the next gradloom_synchronize, so that no call waits, or by
 * the call itself, which then waits for its stream. */
typedef enum gradloom_check_mode { GRADLOOM_CHECK_DEFERRED = 0, GRADLOOM_CHECK_SYNC = 1 } gradloom_check_mode;

/* How far the order of summation may differ from the authored one. */
typedef enum gradloom_determinism {
  GRADLOOM_DETERMINISM_DEFAULT = 0, /* the target's: run to run on a GPU, sequential elsewhere */
  GRADLOOM_SEQUENTIAL = 1,          /* the authored order: the same bits everywhere */
  GRADLOOM_RUN_TO_RUN = 2,          /* the same bits every run, in an order and with roundings of the target's own */
  GRADLOOM_RELAXED = 3              /* any order */
} gradloom_determinism;

/* What gradloom_run and gradloom_run_into do when their kernel is not there yet; gradloom_compile always specialises.
 */
typedef enum gradloom_policy {
  GRADLOOM_POLICY_DEFAULT = 0,    /* a run's: its runtime's; a runtime's: specialise */
  GRADLOOM_POLICY_SPECIALISE = 1, /* compiles the kernel for its shapes at once */
  GRADLOOM_POLICY_GENERIC_FIRST =
      2 /* the kernel of every shape answers; a shape that comes often gets its own in the background. The same bits. */
} gradloom_policy;

/* Whether calls on a CPU use what measuring found (docs/tuning.md). The same bits. */
typedef enum gradloom_tuning {
  GRADLOOM_TUNING_OFF = 0,
  GRADLOOM_TUNING_USE = 1,       /* what the tuning log says of a call */
  GRADLOOM_TUNING_BACKGROUND = 2 /* and, under generic_first, shapes that come often are measured and logged */
} gradloom_tuning;

typedef struct gradloom_runtime gradloom_runtime;       /* threads, memory and compiled kernels */
typedef struct gradloom_attributes gradloom_attributes; /* an op's attributes, by name */
typedef struct gradloom_executable gradloom_executable; /* an op compiled for one set of dtypes and shapes */
typedef struct gradloom_kernel gradloom_kernel;         /* a loop nest of one's own, compiled */
typedef struct gradloom_prepared gradloom_prepared; /* an op with attributes and options, for any dtypes and shapes */

/* "0.1.0": of the library that is loaded. */
GRADLOOM_API const char* gradloom_version(void);
GRADLOOM_API const char* gradloom_status_name(
    gradloom_status status); /* "invalid_argument"; "unknown" for a number that is no status */

/* The message of this thread's last call that failed, "" when none did. Valid until this thread's next call that fails,
 * or its end; a call that succeeds leaves it. At most 4095 bytes: longer ones are cut. */
GRADLOOM_API const char* gradloom_last_error(void);

/* A host's own pool. It calls body(env, begin, end) over a partition of [0, n), on any threads, and returns after every
 * call has. No result bit depends on it. A pool that does not run each iteration once is GRADLOOM_INVALID_ARGUMENT. */
typedef void (*gradloom_body)(void* env, int64_t begin, int64_t end);
typedef void (*gradloom_parallel_for)(void* context, int64_t n, gradloom_body body, void* env);

/* Options start at their defaults: gradloom_runtime_options_init(&options), then set what differs. The size lets a
 * later library take an older program's. */
typedef struct gradloom_runtime_options {
  uint64_t size;           /* sizeof this struct, as the caller was compiled; set by gradloom_runtime_options_init */
  int32_t target;          /* a gradloom_target */
  int32_t threads;         /* 0: as many as this process may use */
  const char* isa;         /* null: this machine's; or a level such as "x86-64-v3" */
  int64_t cache_bytes;     /* compiled code kept in memory */
  int64_t recycle_bytes;   /* output and scratch memory kept for reuse */
  const char* dump_folder; /* null: GRADLOOM_DUMP's, if that is set */

  /* Finished kernels on disk. Null: GRADLOOM_CACHE_DIR, else gradloom in XDG_CACHE_HOME, else ~/.cache/gradloom; "off":
   * none. */
  const char* disk_cache;
  const char* const*
      disk_cache_read_only; /* folders that are looked into besides; none: those of GRADLOOM_CACHE_READONLY */
  int32_t disk_cache_read_only_count;
  int32_t policy; /* a gradloom_policy */
  int64_t disk_cache_bytes;
  /* generic_first: */
  int32_t specialise_after; /* calls of a shape before it gets a kernel of its own */
  int32_t specialisations;  /* at most so many live ones for one kernel of every shape */
  int32_t compile_threads;  /* in the background */

  gradloom_parallel_for parallel_for; /* null: threads of the library's */
  void* parallel_for_context;
  int32_t device; /* of target cuda */

  const char* tuning_log; /* null: GRADLOOM_TUNING_LOG, else tuning.log in the disk cache's folder */
  int32_t tuning;         /* a gradloom_tuning */
} gradloom_runtime_options;
#define gradloom_runtime_options_init(options) \
  gradloom_runtime_options_init_sized((options), sizeof(gradloom_runtime_options))
GRADLOOM_API gradloom_status gradloom_runtime_options_init_sized(gradloom_runtime_options* options, uint64_t size);

/* Returns dense memory, at any address, for an output of a run: the caller's, which outlives its use. Of an output
 * whose size the kernel finds (BroadcastGradientArgs) the shape is the one found. Null: there is none, and the run is
 * GRADLOOM_RESOURCE_EXHAUSTED. */
typedef void* (*gradloom_allocate)(void* context, const char* op, int32_t output, DLDataType dtype, int32_t ndim,
                                   const int64_t* shape);

/* How one call is run: may differ from call to call of one kernel. */
typedef struct gradloom_launch_options {
  uint64_t size;
  gradloom_parallel_for parallel_for; /* null: the runtime's threads. Kernels are cut for as many as the runtime has */
  void* parallel_for_context;
  gradloom_allocate allocate; /* run: null: memory of the runtime's, freed by the outputs' deleters */
  void* allocate_context;
  void* stream;  /* on a GPU: a CUstream, which outlives outputs made on it */
  int32_t check; /* on a GPU: a gradloom_check_mode */
} gradloom_launch_options;
#define gradloom_launch_options_init(options) \
  gradloom_launch_options_init_sized((options), sizeof(gradloom_launch_options))
GRADLOOM_API gradloom_status gradloom_launch_options_init_sized(gradloom_launch_options* options, uint64_t size);

typedef struct gradloom_run_options {
  uint64_t size;
  int32_t determinism;                   /* a gradloom_determinism */
  int32_t accumulate;                    /* nonzero: add into the outputs given (run_into, compile) */
  int32_t any_shape;                     /* nonzero: the kernel that serves every shape of this rank */
  const char* strategy;                  /* null: chosen by shape */
  uint32_t outputs_wanted;               /* run, compile: bit o asks for output o */
  int32_t policy;                        /* a gradloom_policy */
  const gradloom_launch_options* launch; /* run, run_into: null: the defaults */
} gradloom_run_options;
#define gradloom_run_options_init(options) gradloom_run_options_init_sized((options), sizeof(gradloom_run_options))
GRADLOOM_API gradloom_status gradloom_run_options_init_sized(gradloom_run_options* options, uint64_t size);

/* options may be null: the defaults.
 * In a child of fork, runtimes and executables of the parent keep working and new ones can be made, whatever other
 * threads of the parent were doing (docs/embedding.md). */
GRADLOOM_API gradloom_status gradloom_runtime_create(const gradloom_runtime_options* options,
                                                     gradloom_runtime** runtime);
/* The process's shared runtime, for libraries that live side by side in it: the first caller's options make it, those
 * of later callers are not used. Each caller destroys what it got; the runtime lasts until the last one has. */
GRADLOOM_API gradloom_status gradloom_shared_runtime(const gradloom_runtime_options* options,
                                                     gradloom_runtime** runtime);
GRADLOOM_API void gradloom_runtime_destroy(
    gradloom_runtime* runtime); /* executables made from it, and outputs, stay valid */

GRADLOOM_API gradloom_status gradloom_attributes_create(gradloom_attributes** attributes);
GRADLOOM_API void gradloom_attributes_destroy(gradloom_attributes* attributes);
/* Each copies name and value; a name that is set already gets the new value. Not to be called on one object from two
 * threads at a time. */
GRADLOOM_API gradloom_status gradloom_attributes_set_int(gradloom_attributes* attributes, const char* name,
                                                         int64_t value);
GRADLOOM_API gradloom_status gradloom_attributes_set_float(gradloom_attributes* attributes, const char* name,
                                                           double value);
GRADLOOM_API gradloom_status gradloom_attributes_set_string(gradloom_attributes* attributes, const char* name,
                                                            const char* value);
GRADLOOM_API gradloom_status gradloom_attributes_set_ints(gradloom_attributes* attributes, const char* name,
                                                          const int64_t* values, int32_t count);
GRADLOOM_API gradloom_status gradloom_attributes_set_floats(gradloom_attributes* attributes, const char* name,
                                                            const double* values, int32_t count);
GRADLOOM_API gradloom_status gradloom_attributes_set_strings(gradloom_attributes* attributes, const char* name,
                                                             const char* const* values, int32_t count);

/* Tensors come as arrays of pointers; an array of no entries may be null. attributes and options may be null. */

/* Runs an op. Each output that is asked for is a fresh tensor of the caller's: call its deleter when done with it, on
 * any thread, before or after the runtime is destroyed. `outputs` gets output_count entries, null for those that the op
 * does not have or that are not asked for; an output that the op gives and that has no place in `outputs` is dropped.
 */
GRADLOOM_API gradloom_status gradloom_run(gradloom_runtime* runtime, const char* op, const DLTensor* const* inputs,
                                          int32_t input_count, const gradloom_attributes* attributes,
                                          const gradloom_run_options* options, DLManagedTensor** outputs,
                                          int32_t output_count);

/* What such a run gives, without running it: of each output its dtype and shape, the largest possible where the kernel
 * finds the size. Of the inputs' data only shape-like ones are read; that of others may be null. `outputs` gets
 * output_count entries. */
typedef struct gradloom_output_info {
  int32_t given; /* 0: the op does not have it or does not give it here, or it is not asked for; all else is 0 then */
  int32_t ndim;
  DLDataType dtype;
  int64_t shape[16];
} gradloom_output_info;
GRADLOOM_API gradloom_status gradloom_infer_outputs(const gradloom_runtime* runtime, const char* op,
                                                    const DLTensor* const* inputs, int32_t input_count,
                                                    const gradloom_attributes* attributes,
                                                    const gradloom_run_options* options, gradloom_output_info* outputs,
                                                    int32_t output_count);

/* Runs into the caller's tensors, with any strides that give each element memory of its own: nothing is written between
 * the elements. An output whose size the kernel finds (BroadcastGradientArgs) gets fewer
 * elements: its dims are written to the tensor's own shape array. */
GRADLOOM_API gradloom_status gradloom_run_into(gradloom_runtime* runtime, const char* op, const DLTensor* const* inputs,
                                               int32_t input_count, const gradloom_attributes* attributes,
                                               const gradloom_run_options* options, DLTensor* const* outputs,
                                               int32_t output_count);

/* A handle for hot loops. Of the inputs' data only shape-like ones are read. */
GRADLOOM_API gradloom_status gradloom_compile(gradloom_runtime* runtime, const char* op, const DLTensor* const* inputs,
                                              int32_t input_count, const gradloom_attributes* attributes,
                                              const gradloom_run_options* options, gradloom_executable** executable);
GRADLOOM_API void gradloom_executable_destroy(gradloom_executable* executable);
GRADLOOM_API gradloom_status gradloom_call(const gradloom_executable* executable, const DLTensor* const* inputs,
                                           int32_t input_count, DLTensor* const* outputs, int32_t output_count);

/* A handle for hot loops over any dtypes and shapes: what gradloom_run does, with the op looked up and the attributes
 * checked once, under the runtime's policy. A call like an earlier one is checked by comparing it. The options' launch
 * is not used: each call has its own, which may be null. */
GRADLOOM_API gradloom_status gradloom_prepare(gradloom_runtime* runtime, const char* op,
                                              const gradloom_attributes* attributes,
                                              const gradloom_run_options* options, gradloom_prepared** prepared);
GRADLOOM_API void gradloom_prepared_destroy(gradloom_prepared* prepared);
/* As gradloom_run, gradloom_run_into and gradloom_infer_outputs. */
GRADLOOM_API gradloom_status gradloom_prepared_run(const gradloom_prepared* prepared, const DLTensor* const* inputs,
                                                   int32_t input_count, const gradloom_launch_options* launch,
                                                   DLManagedTensor** outputs, int32_t output_count);
GRADLOOM_API gradloom_status gradloom_prepared_run_into(const gradloom_prepared* prepared,
                                                        const DLTensor* const* inputs, int32_t input_count,
                                                        const gradloom_launch_options* launch, DLTensor* const* outputs,
                                                        int32_t output_count);
GRADLOOM_API gradloom_status gradloom_prepared_infer_outputs(const gradloom_prepared* prepared,
                                                             const DLTensor* const* inputs, int32_t input_count,
                                                             gradloom_output_info* outputs, int32_t output_count);

/* A loop nest of one's own, in text form (.loop), rewritten by the steps of a schedule's trace, a line each; without
 * steps (null or "") it gets the target's default schedule. Its indices are its author's: compiled code does not check
 * them, so guard those that come from data with `check`, and try a nest on GRADLOOM_TARGET_INTERPRETER first. */
GRADLOOM_API gradloom_status gradloom_kernel_compile(gradloom_runtime* runtime, const char* nest, const char* trace,
                                                     gradloom_kernel** kernel);
GRADLOOM_API void gradloom_kernel_destroy(gradloom_kernel* kernel);
/* Buffers and scalars in the nest's order, outputs among the buffers; a scalar is one 64-bit slot: an integer's value,
 * a float's bits in the lowest bytes. What differs from the nest's declarations is GRADLOOM_INVALID_ARGUMENT, a check
 * that fails GRADLOOM_OUT_OF_RANGE. Of the launch, which may be null, allocate is not used. */
GRADLOOM_API gradloom_status gradloom_kernel_call(const gradloom_kernel* kernel, const DLTensor* const* buffers,
                                                  int32_t buffer_count, const int64_t* scalars, int32_t scalar_count,
                                                  const gradloom_launch_options* launch);

/* On a GPU; elsewhere these do nothing, and a copy is of the same memory. */
/* Waits for the stream, then reports the first out-of-range index found by launches since the last call. */
GRADLOOM_API gradloom_status gradloom_synchronize(gradloom_runtime* runtime, void* stream);
/* A copy with the same shape and strides in the device's memory, or the host's; waits for the stream. */
GRADLOOM_API gradloom_status gradloom_to_device(gradloom_runtime* runtime, const DLTensor* tensor, void* stream,
                                                DLManagedTensor** copy);
GRADLOOM_API gradloom_status gradloom_to_host(gradloom_runtime* runtime, const DLTensor* tensor, void* stream,
                                              DLManagedTensor** copy);

/* DLPack 1.x's capsules. Each takes the tensor over: its deleter is called by that of the new one; on failure it is the
 * caller's still. A read-only tensor, which an input may be, has no place in the old struct: it is refused where
 * `writes` is not 0, and its consumer must not write to it otherwise. */
struct DLManagedTensorVersioned;
GRADLOOM_API gradloom_status gradloom_to_versioned(DLManagedTensor* tensor,
                                                   struct DLManagedTensorVersioned** versioned);
GRADLOOM_API gradloom_status gradloom_from_versioned(struct DLManagedTensorVersioned* versioned, int32_t writes,
                                                     DLManagedTensor** tensor);

/* The ops, for registrations, checks and documentation that are generated. What these point to is constant and stays as
 * long as the library is loaded. A later library's structs may be longer: each has its size. */
typedef enum gradloom_attribute_kind {
  GRADLOOM_INT = 0,
  GRADLOOM_FLOAT = 1,
  GRADLOOM_STRING = 2,
  GRADLOOM_INTS = 3,
  GRADLOOM_FLOATS = 4,
  GRADLOOM_STRINGS = 5
} gradloom_attribute_kind;
typedef struct gradloom_argument_schema {
  uint64_t size;
  const char* name;
  const char* doc;  /* one line: shape and meaning */
  const char* type; /* arguments of one type, such as "T", have one dtype in a call; "": a dtype of its own */
  const DLDataType* dtypes;
  int32_t dtype_count;
  int32_t optional;
  int32_t shape_like; /* host memory on every target; its values are read when a call is checked */
  int32_t found_size; /* of an output: the kernel finds its size */
} gradloom_argument_schema;
typedef struct gradloom_attribute_schema {
  uint64_t size;
  const char* name;
  const char* doc;
  int32_t kind;                /* a gradloom_attribute_kind */
  int32_t default_count;       /* values of the default, one for kinds that are no lists; -1: none, see doc */
  const int64_t* default_ints; /* those of its kind; the others are null */
  const double* default_floats;
  const char* const* default_strings;
} gradloom_attribute_schema;
typedef struct gradloom_op_schema {
  uint64_t size;
  const char* name;
  const char* doc; /* one line */
  const gradloom_argument_schema* const* inputs;
  const gradloom_argument_schema* const* outputs;
  const gradloom_attribute_schema* const* attributes;
  int32_t input_count, output_count, attribute_count;
  int32_t on_host; /* of shapes: all its tensors are host memory on every target */
} gradloom_op_schema;
GRADLOOM_API gradloom_status gradloom_ops(const gradloom_op_schema* const** ops, int32_t* count);
/* GRADLOOM_UNSUPPORTED, naming the ops that there are, for one that does not exist. */
GRADLOOM_API gradloom_status gradloom_find_op(const char* name, const gradloom_op_schema** op);

/* The calls that needed a kernel so far, without their data: bytes for a file, of which another process makes the
 * kernels ready before it needs them. At most 10,000 calls. Free with gradloom_bytes_free. */
GRADLOOM_API gradloom_status gradloom_save_calls(const gradloom_runtime* runtime, void** bytes, uint64_t* size);
GRADLOOM_API void gradloom_bytes_free(void* bytes);
typedef struct gradloom_prewarm_report {
  int64_t ready, compiled, failed; /* ready: in memory now, of which `compiled` were not on disk */
  char first_failure[512];         /* why the first of the failed ones did, "" when none did; longer ones are cut */
} gradloom_prewarm_report;
/* A call that fails, such as one of another library's op, is counted in the report, which may be null; damaged bytes
 * are GRADLOOM_INVALID_ARGUMENT. */
GRADLOOM_API gradloom_status gradloom_prewarm(gradloom_runtime* runtime, const void* bytes, uint64_t size,
                                              gradloom_prewarm_report* report);
/* Returns once no specialisation is under way. */
GRADLOOM_API gradloom_status gradloom_wait_for_background(const gradloom_runtime* runtime);

/* Counters as a JSON object: hits, misses, compiles, launches, evictions, entries, code_bytes, compile_ms and its
 * parts, those of the disk (disk_miss_parts: how often each part of a key differed from the nearest entry's) and of
 * generic_first. Free with gradloom_string_free. */
GRADLOOM_API gradloom_status gradloom_stats_json(const gradloom_runtime* runtime, char** json);
GRADLOOM_API gradloom_status gradloom_target_name(const gradloom_runtime* runtime,
                                                  char** name); /* "llvm x86-64-v3", "interpreter" */
GRADLOOM_API void gradloom_string_free(char* string);

/* The log: what goes wrong without failing a call, one printable line a message; to stderr unless a sink is set. The
 * level is GRADLOOM_LOG's until it is set. Calls of the sink do not overlap; once set_log_sink returns, none of the old
 * sink goes on; a sink must not set one. A null sink: stderr again. */
typedef enum gradloom_log_level {
  GRADLOOM_LOG_OFF = 0,
  GRADLOOM_LOG_ERROR = 1,
  GRADLOOM_LOG_WARN = 2,
  GRADLOOM_LOG_INFO = 3,
  GRADLOOM_LOG_DEBUG = 4
} gradloom_log_level;
typedef void (*gradloom_log_sink)(void* context, gradloom_log_level level, const char* message);
GRADLOOM_API gradloom_status gradloom_set_log_level(int32_t level); /* a gradloom_log_level */
GRADLOOM_API gradloom_status gradloom_set_log_sink(gradloom_log_sink sink, void* context);

#ifdef __cplusplus
}
#endif
#endif
