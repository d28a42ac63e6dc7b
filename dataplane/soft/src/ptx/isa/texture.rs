//! Instructions on textures and surfaces.

use crate::ptx::isa::operand::{AtomOp, Reg, Src, Ty};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Geometry {
    D1,
    D2,
    D3,
    D1Array,
    D2Array,
    Cube,
    CubeArray,
}

impl Geometry {
    pub fn axes(self) -> usize {
        match self {
            Self::D1 | Self::D1Array => 1,
            Self::D2 | Self::D2Array => 2,
            Self::D3 | Self::Cube | Self::CubeArray => 3,
        }
    }
    pub fn is_array(self) -> bool {
        matches!(self, Self::D1Array | Self::D2Array | Self::CubeArray)
    }
    pub fn is_cube(self) -> bool {
        matches!(self, Self::Cube | Self::CubeArray)
    }
}

#[derive(Clone, Debug)]
pub struct Place {
    pub geometry: Geometry,
    /// `Src::None` where there are no layers.
    pub layer: Src,
    pub axes: Box<[Src]>,
}

#[derive(Clone, Debug)]
pub enum Level {
    Base,
    Explicit(Src),
    Gradient(Box<[Src]>, Box<[Src]>),
}

/// What a surface access outside the surface does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    Trap,
    Clamp,
    Zero,
}

/// How the results of a texture instruction are laid into registers.
#[derive(Clone, Debug)]
pub struct Results {
    pub ty: Ty,
    pub regs: Box<[Reg]>,
    /// Set when the texels exist, which only sparse arrays lack.
    pub resident: Reg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    Width,
    Height,
    Depth,
    Layers,
    Levels,
    ChannelType,
    ChannelOrder,
    IsNormalised,
}

#[derive(Clone, Debug)]
pub enum TextureOp {
    Sample {
        place: Place,
        /// Whether coordinates number texels instead of measuring.
        integer: bool,
        level: Level,
        to: Results,
    },
    /// One channel of the four texels that a linear filter would use.
    Gather {
        place: Place,
        channel: usize,
        to: Results,
    },
    QueryTexture {
        query: Query,
        level: Src,
    },
    QuerySurface(Query),
    Load {
        place: Place,
        outside: Outside,
        ty: Ty,
        regs: Box<[Reg]>,
    },
    Store {
        place: Place,
        outside: Outside,
        ty: Ty,
        values: Box<[Src]>,
        /// The values are channels and x counts texels; otherwise they are bytes, and x counts those.
        formatted: bool,
    },
    Reduce {
        place: Place,
        outside: Outside,
        op: AtomOp,
        ty: Ty,
        value: Src,
        formatted: bool,
    },
}
