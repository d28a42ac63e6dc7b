//! Types, registers, address windows, and the words that instructions carry beside their operands.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ty {
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    Tf32,
    F32,
    F64,
}

impl Ty {
    pub fn from_name(s: &str) -> Option<Self> {
        Some(match s {
            "pred" => Self::Pred,
            "b8" => Self::B8,
            "b16" => Self::B16,
            "b32" => Self::B32,
            "b64" => Self::B64,
            "b128" => Self::B128,
            "u8" => Self::U8,
            "u16" => Self::U16,
            "u32" => Self::U32,
            "u64" => Self::U64,
            "s8" => Self::S8,
            "s16" => Self::S16,
            "s32" => Self::S32,
            "s64" => Self::S64,
            "f16" => Self::F16,
            "f16x2" => Self::F16x2,
            "bf16" => Self::Bf16,
            "bf16x2" => Self::Bf16x2,
            "tf32" => Self::Tf32,
            "f32" => Self::F32,
            "f64" => Self::F64,
            _ => return None,
        })
    }
    pub fn bytes(self) -> u32 {
        match self {
            Self::Pred | Self::B8 | Self::U8 | Self::S8 => 1,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::Bf16 => 2,
            Self::B32 | Self::U32 | Self::S32 | Self::F32 | Self::F16x2 | Self::Bf16x2 | Self::Tf32 => 4,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => 8,
            Self::B128 => 16,
        }
    }
    pub fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F16x2 | Self::Bf16 | Self::Bf16x2 | Self::F32 | Self::F64 | Self::Tf32)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Generic,
    Global,
    Const,
    Shared,
    Local,
    /// Kernel parameters; parameters of device functions are decoded to `Local`.
    Param,
}

/// Generic addresses of the spaces that are not plain memory. The windows lie above every user address of the host.
pub const SHARED_WINDOW: u64 = 0x00ff_0000_0000_0000;
pub const LOCAL_WINDOW: u64 = 0x00fe_0000_0000_0000;
pub const PARAM_WINDOW: u64 = 0x00fd_0000_0000_0000;
pub const FUNCTION_WINDOW: u64 = 0x00fc_0000_0000_0000;
pub const WINDOW_MASK: u64 = 0xffff_0000_0000_0000;

/// Above its offset, an address in shared memory holds the rank of its block in the cluster, plus one. Zero is the
/// block that uses the address.
pub const RANK_SHIFT: u32 = 24;

/// Bytes of shared memory that cooperative groups use behind the program's back.
pub const RESERVED_SHARED: u32 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reg {
    None,
    R32(u32),
    R64(u32),
    P(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Src {
    None,
    R32(u32),
    R64(u32),
    /// Predicate, negated when true.
    P(u32, bool),
    Imm(u64),
    /// Offset inside the frame's local memory.
    Local(u32),
    /// Offset from the start of dynamic shared memory.
    DynShared(u32),
    Special(Special),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NwarpId,
    SmId,
    NsmId,
    GridId,
    Clock,
    Clock64,
    ClockHi,
    GlobalTimer,
    GlobalTimerLo,
    GlobalTimerHi,
    LaneMaskEq,
    LaneMaskLt,
    LaneMaskLe,
    LaneMaskGt,
    LaneMaskGe,
    DynamicSmem,
    TotalSmem,
    EnvReg(u8),
    /// Offset inside the kilobyte that the system keeps after a block's shared memory.
    ReservedSmem(u32),
    ClusterId(u8),
    NclusterId(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterCtarank,
    ClusterNctarank,
    IsExplicitCluster,
    Zero,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logic {
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    Nearest,
    Zero,
    Down,
    Up,
    /// Ties away from zero.
    Away,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntBin {
    Add,
    Sub,
    MulLo,
    MulHi,
    Mul24Lo,
    Mul24Hi,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    AddSat,
    SubSat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatBin {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    MinNan,
    MaxNan,
    CopySign,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatUn {
    Neg,
    Abs,
    Sqrt,
    Rsqrt,
    Rcp,
    Sin,
    Cos,
    Ex2,
    Lg2,
    Tanh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntUn {
    Not,
    Neg,
    Abs,
    Popc,
    Clz,
    Brev,
    Bfind,
    BfindShift,
    Cnot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fp {
    pub round: Round,
    pub ftz: bool,
    pub sat: bool,
    pub relu: bool,
    /// What overflows is the greatest number, not an infinity.
    pub finite: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomOp {
    Add,
    And,
    Or,
    Xor,
    Exch,
    Cas,
    Inc,
    Dec,
    Min,
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShflMode {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteMode {
    All,
    Any,
    Uni,
    Ballot,
}

/// Operations that wait for the lanes of a member mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarpOp {
    Sync,
    Shfl(ShflMode),
    Vote(VoteMode),
    MatchAny,
    MatchAll,
    Redux(AtomOp, bool),
    ReduxFloat { max: bool, abs: bool, nan: bool },
    Elect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarOp {
    Sync,
    Arrive,
    RedPopc,
    RedAnd,
    RedOr,
    ClusterArrive,
    ClusterWait,
}

/// Questions about addresses in the shared memory of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterOp {
    /// The address of the same variable in the block whose rank is `b`.
    Mapa {
        generic: bool,
    },
    CtaRank {
        generic: bool,
    },
    IsShared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MbarrierOp {
    Init,
    Inval,
    ExpectTx,
    CompleteTx,
    Arrive { drop: bool, expect_tx: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    Vprintf,
    AssertFail,
    Malloc,
    Free,
    SetConditional,
}
