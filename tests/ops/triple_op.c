/* A custom operator for ONNX Runtime, test.ops::Triple: float32 to float32, y = 3 x.
 *
 * Written against the part of ONNX Runtime's C ABI that it uses, since the wheels hold no header: functions are called by their
 * places in the table of API version 1, to which later versions only append. */
#include <stddef.h>
#include <stdint.h>

enum { CREATE_DOMAIN = 26, DOMAIN_ADD = 27, ADD_DOMAIN = 28, TENSOR_DATA = 51, DIM_COUNT = 61, DIMS = 62, TENSOR_SHAPE = 65, GET_INPUT = 90, GET_OUTPUT = 91, RELEASE_SHAPE = 99 };
enum { FLOAT = 1 };

typedef const void *const *Api;
typedef struct { Api (*GetApi)(uint32_t version); const char *(*GetVersionString)(void); } ApiBase;

typedef struct Op {
  uint32_t version;
  void *(*CreateKernel)(const struct Op *, Api, const void *info);
  const char *(*GetName)(const struct Op *);
  const char *(*GetExecutionProviderType)(const struct Op *);
  int (*GetInputType)(const struct Op *, size_t);
  size_t (*GetInputTypeCount)(const struct Op *);
  int (*GetOutputType)(const struct Op *, size_t);
  size_t (*GetOutputTypeCount)(const struct Op *);
  void (*KernelCompute)(void *kernel, void *context);
  void (*KernelDestroy)(void *kernel);
  int (*GetInputCharacteristic)(const struct Op *, size_t);
  int (*GetOutputCharacteristic)(const struct Op *, size_t);
  int (*GetInputMemoryType)(const struct Op *, size_t);
  int (*GetVariadicInputMinArity)(const struct Op *);
  int (*GetVariadicInputHomogeneity)(const struct Op *);
  int (*GetVariadicOutputMinArity)(const struct Op *);
  int (*GetVariadicOutputHomogeneity)(const struct Op *);
  const void *later[16];
} Op;

static Api api;

static void *create(const Op *op, Api given, const void *info) { return (void *)op; }
static const char *name(const Op *op) { return "Triple"; }
static const char *provider(const Op *op) { return NULL; }
static int type(const Op *op, size_t i) { return FLOAT; }
static size_t one(const Op *op) { return 1; }
static int required(const Op *op, size_t i) { return 0; }
static int cpu(const Op *op, size_t i) { return 0; }
static int single(const Op *op) { return 1; }
static void destroy(void *kernel) {}

static void compute(void *kernel, void *context) {
  const void *input;
  void *shape, *output, *from, *to;
  size_t rank, count = 1;
  int64_t dims[16];
  ((void *(*)(const void *, size_t, const void **))api[GET_INPUT])(context, 0, &input);
  ((void *(*)(const void *, void **))api[TENSOR_SHAPE])(input, &shape);
  ((void *(*)(const void *, size_t *))api[DIM_COUNT])(shape, &rank);
  ((void *(*)(const void *, int64_t *, size_t))api[DIMS])(shape, dims, rank);
  ((void (*)(void *))api[RELEASE_SHAPE])(shape);
  ((void *(*)(void *, size_t, const int64_t *, size_t, void **))api[GET_OUTPUT])(context, 0, dims, rank, &output);
  ((void *(*)(const void *, void **))api[TENSOR_DATA])(input, &from);
  ((void *(*)(const void *, void **))api[TENSOR_DATA])(output, &to);
  for (size_t i = 0; i < rank; i++) count *= (size_t)dims[i];
  for (size_t i = 0; i < count; i++) ((float *)to)[i] = 3.0f * ((const float *)from)[i];
}

static Op triple = {14, create, name, provider, type, one, type, one, compute, destroy, required, required, cpu, single, single, single, single};

void *RegisterCustomOps(void *options, const ApiBase *base) {
  static void *domain;
  void *status;
  api = base->GetApi(1);
  if (!domain) {
    if ((status = ((void *(*)(const char *, void **))api[CREATE_DOMAIN])("test.ops", &domain))) return status;
    if ((status = ((void *(*)(void *, const Op *))api[DOMAIN_ADD])(domain, &triple))) return status;
  }
  return ((void *(*)(void *, void *))api[ADD_DOMAIN])(options, domain);
}
