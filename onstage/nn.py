"""Neural-network functions: convolutions, pools, attention, activations, softmax, normalisation, recurrent cells, losses, embeddings.

They take and give NumPy arrays, `ons.Array`s or traced arrays. Sizes of batches may be named dims; float16 and bfloat16 are computed in
float32 and rounded once.
"""

from .ops.nn.activations import celu as celu
from .ops.nn.activations import elu as elu
from .ops.nn.activations import gelu as gelu
from .ops.nn.activations import glu as glu
from .ops.nn.activations import hard_sigmoid as hard_sigmoid
from .ops.nn.activations import hard_silu as hard_silu
from .ops.nn.activations import hard_tanh as hard_tanh
from .ops.nn.activations import leaky_relu as leaky_relu
from .ops.nn.activations import log_sigmoid as log_sigmoid
from .ops.nn.activations import mish as mish
from .ops.nn.activations import prelu as prelu
from .ops.nn.activations import relu as relu
from .ops.nn.activations import relu6 as relu6
from .ops.nn.activations import selu as selu
from .ops.nn.activations import sigmoid as sigmoid
from .ops.nn.activations import silu as silu
from .ops.nn.activations import soft_sign as soft_sign
from .ops.nn.activations import softplus as softplus
from .ops.nn.attention import attention as attention
from .ops.nn.convolution import conv as conv
from .ops.nn.convolution import conv_transpose as conv_transpose
from .ops.nn.dropout import dropout as dropout
from .ops.nn.embedding import embedding as embedding
from .ops.nn.embedding import one_hot as one_hot
from .ops.nn.losses import cross_entropy as cross_entropy
from .ops.nn.normalization import batch_norm as batch_norm
from .ops.nn.normalization import group_norm as group_norm
from .ops.nn.normalization import instance_norm as instance_norm
from .ops.nn.normalization import layer_norm as layer_norm
from .ops.nn.normalization import rms_norm as rms_norm
from .ops.nn.pooling import adaptive_avg_pool as adaptive_avg_pool
from .ops.nn.pooling import adaptive_max_pool as adaptive_max_pool
from .ops.nn.pooling import avg_pool as avg_pool
from .ops.nn.pooling import global_avg_pool as global_avg_pool
from .ops.nn.pooling import global_max_pool as global_max_pool
from .ops.nn.pooling import max_pool as max_pool
from .ops.nn.recurrent import gru_cell as gru_cell
from .ops.nn.recurrent import lstm_cell as lstm_cell
from .ops.nn.resize import resize as resize
from .ops.nn.rotary import rotary as rotary
from .ops.nn.segments import segment_max as segment_max
from .ops.nn.segments import segment_mean as segment_mean
from .ops.nn.segments import segment_min as segment_min
from .ops.nn.segments import segment_sum as segment_sum
from .ops.nn.softmax import log_softmax as log_softmax
from .ops.nn.softmax import softmax as softmax
from .ops.sorting import top_k as top_k
from .ops.statistics import logsumexp as logsumexp
