//! Instructions.

use crate::ptx::isa::matrix::MatrixOp;
use crate::ptx::isa::narrow::Narrow;
use crate::ptx::isa::operand::*;
use crate::ptx::isa::texture::TextureOp;
use crate::ptx::isa::video::Video;

/// Where a call's argument lies in the caller's frame and how many bytes it has.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub offset: u32,
    pub bytes: u32,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub target: Target,
    pub args: Vec<Slot>,
    pub returns: Vec<Slot>,
}

#[derive(Clone, Debug)]
pub enum Target {
    Function(u32),
    Builtin(Builtin),
    Register(Src),
}

#[derive(Clone, Debug)]
pub enum Op {
    Nop,
    Mov,
    /// `a` plus the window of a space.
    Cvta {
        window: u64,
    },
    CvtaTo {
        window: u64,
    },
    IsSpace(Space),
    Pack(Ty, Box<[Src]>),
    Unpack(Ty, Box<[Reg]>),
    IntBin(IntBin, Ty),
    IntUn(IntUn, Ty),
    MulWide(Ty),
    MadLo(Ty),
    MadHi(Ty),
    MadWide(Ty),
    Mad24(Ty),
    Sad(Ty),
    /// Carry chain: `sub` subtracts, `cin` uses and `cout` sets the carry.
    Carry {
        ty: Ty,
        sub: bool,
        cin: bool,
        cout: bool,
    },
    MadCarry {
        ty: Ty,
        hi: bool,
        cin: bool,
        cout: bool,
    },
    Bfe(Ty),
    Bfi(Ty),
    Bmsk,
    Szext(bool),
    Fns,
    Shf {
        left: bool,
        wrap: bool,
    },
    Prmt(u8),
    Lop3(u8),
    Dp4a(bool, bool),
    Dp2a(bool, bool, bool),
    FloatBin(FloatBin, Ty, Fp),
    FloatUn(FloatUn, Ty, Fp),
    Fma(Ty, Fp),
    Testp(u8, Ty),
    Cvt {
        to: Ty,
        from: Ty,
        round: Round,
        integer: bool,
        fp: Fp,
    },
    /// Two floats to a packed pair; `a` becomes the upper half.
    CvtPair {
        to: Ty,
        fp: Fp,
    },
    CvtPack {
        to: Ty,
        from: Ty,
        merge: bool,
    },
    Setp {
        cmp: Cmp,
        ty: Ty,
        logic: Option<Logic>,
        ftz: bool,
    },
    Set {
        cmp: Cmp,
        to: Ty,
        ty: Ty,
        logic: Option<Logic>,
        ftz: bool,
    },
    PredBin(Logic),
    PredNot,
    PredMov,
    Selp(Ty),
    Slct(Ty, bool),
    Ld {
        space: Space,
        ty: Ty,
        offset: i64,
    },
    LdVec {
        space: Space,
        ty: Ty,
        offset: i64,
        regs: Box<[Reg]>,
    },
    St {
        space: Space,
        ty: Ty,
        offset: i64,
    },
    StVec {
        space: Space,
        ty: Ty,
        offset: i64,
        regs: Box<[Src]>,
    },
    Atom {
        space: Space,
        op: AtomOp,
        ty: Ty,
        offset: i64,
    },
    /// Exchanges 16 bytes, if they are `expected` where that is given.
    ExchangePair {
        space: Space,
        offset: i64,
        old: [Reg; 2],
        new: [Src; 2],
        expected: Option<[Src; 2]>,
    },
    CpAsync {
        bytes: u32,
        to: i64,
        from: i64,
    },
    Texture(Box<TextureOp>),
    Matrix(Box<MatrixOp>),
    /// A conversion from or to a format narrower than 16 bits.
    Narrow(Narrow),
    Video(Box<Video>),
    /// Copies `c` bytes; `e` is the mask of the blocks that receive them, when they are several.
    BulkCopy {
        to: (Space, i64),
        from: (Space, i64),
    },
    Cluster(ClusterOp),
    Mbarrier {
        op: MbarrierOp,
        space: Space,
        offset: i64,
    },
    /// Whether the phase that `b` names, by its state or by its parity, has completed.
    MbarrierTest {
        parity: bool,
        space: Space,
        offset: i64,
    },
    Fence,
    Nanosleep,
    Activemask,
    Warp(WarpOp),
    Bar(BarOp),
    Bra(u32),
    BrxIdx(Box<[u32]>),
    Call(Box<Call>),
    Ret,
    Exit,
    Trap,
}

#[derive(Clone, Debug)]
pub struct Instr {
    pub op: Op,
    /// Predicate register that must hold; `u32::MAX` for none.
    pub guard: u32,
    pub guard_negated: bool,
    pub d: Reg,
    pub d2: Reg,
    pub a: Src,
    pub b: Src,
    pub c: Src,
    pub e: Src,
    pub line: u32,
}
