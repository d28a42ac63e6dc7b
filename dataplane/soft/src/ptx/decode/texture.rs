//! Instructions on textures and surfaces, in PTX's unified mode: one 64-bit handle names texels and their sampling.

use crate::ptx::decode::decoder::{Decoder, Mods, Result, unsupported};
use crate::ptx::isa::instruction::Op;
use crate::ptx::isa::operand::{AtomOp, Reg, Src, Ty};
use crate::ptx::isa::texture::{Geometry, Level, Outside, Place, Query, Results, TextureOp};
use crate::ptx::syntax::Operand;

impl Geometry {
    fn of(mods: &Mods) -> Result<Self> {
        let hit = mods.0.iter().find_map(|m| {
            Some(match *m {
                "1d" => Self::D1,
                "2d" => Self::D2,
                "3d" => Self::D3,
                "a1d" => Self::D1Array,
                "a2d" => Self::D2Array,
                "cube" => Self::Cube,
                "acube" => Self::CubeArray,
                _ => return None,
            })
        });
        hit.ok_or_else(|| "geometry".into())
    }
}

impl Decoder<'_> {
    pub(super) fn texture(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let first = ops.first().ok_or("too few operands")?;
        let second = ops.get(1).ok_or("too few operands")?;
        let (d, handle, op) = match base {
            "tex" => {
                let integer = mods.types().last() == Some(&Ty::S32);
                let (handle, place) = self.place(mods, second, if integer { Ty::S32 } else { Ty::F32 })?;
                let (level, used) = self.level(mods, place.geometry, &ops[2..])?;
                if ops.len() > 2 + used {
                    return unsupported("an offset or depth comparison");
                }
                (Reg::None, handle, TextureOp::Sample { place, integer, level, to: self.results(mods, first)? })
            }
            "tld4" => {
                let (handle, place) = self.place(mods, second, Ty::F32)?;
                let channel = match mods.0.iter().find_map(|m| "rgba".find(*m)) {
                    Some(channel) if place.geometry == Geometry::D2 && ops.len() == 2 => channel,
                    _ => return unsupported("an offset, a depth comparison or this geometry"),
                };
                (Reg::None, handle, TextureOp::Gather { place, channel, to: self.results(mods, first)? })
            }
            "txq" | "suq" => {
                let Operand::Addr(object, 0) = second else { return unsupported("address form") };
                let handle = self.handle(object)?;
                let query = query(mods)?;
                let op = if base == "suq" {
                    TextureOp::QuerySurface(query)
                } else {
                    let level = ops.get(2).map_or(Ok(Src::None), |o| self.src(o, Ty::U32))?;
                    TextureOp::QueryTexture { query, level }
                };
                (self.dst(first)?, handle, op)
            }
            _ => {
                let (handle, op) = self.surface(base, mods, first, second)?;
                (Reg::None, handle, op)
            }
        };
        let i = self.emit(Op::Texture(Box::new(op)));
        (i.d, i.a) = (d, handle);
        Ok(())
    }

    fn surface(&self, base: &str, mods: &Mods, first: &Operand, second: &Operand) -> Result<(Src, TextureOp)> {
        let ty = mods.ty()?;
        let outside = match mods.0.last() {
            Some(&"clamp") => Outside::Clamp,
            Some(&"zero") => Outside::Zero,
            // The default of the versions of PTX that may leave it out.
            _ => Outside::Trap,
        };
        let formatted = mods.has("p");
        let (place, value) = if base == "suld" { (second, first) } else { (first, second) };
        let (handle, place) = self.place(mods, place, Ty::S32)?;
        if place.geometry.is_cube() {
            return unsupported("geometry");
        }
        let op = match base {
            "suld" if formatted => return unsupported("formatted load"),
            "suld" => {
                let regs = vector(value, ty)?.iter().map(|o| self.dst(o)).collect::<Result<_>>()?;
                TextureOp::Load { place, outside, ty, regs }
            }
            "sust" => {
                let values = self.list(vector(value, ty)?, ty)?;
                TextureOp::Store { place, outside, ty, values, formatted }
            }
            _ => {
                let [value] = each(value) else { return unsupported("vector operand") };
                if !matches!(ty, Ty::B32 | Ty::U32 | Ty::S32 | Ty::U64 | Ty::S64) {
                    return unsupported("type of the reduction");
                }
                let op = match mods.0.iter().find(|m| matches!(**m, "add" | "min" | "max" | "and" | "or")) {
                    Some(&"add") => AtomOp::Add,
                    Some(&"min") => AtomOp::Min,
                    Some(&"max") => AtomOp::Max,
                    Some(&"and") => AtomOp::And,
                    Some(&"or") => AtomOp::Or,
                    _ => return unsupported("unknown reduction"),
                };
                TextureOp::Reduce { place, outside, op, ty, value: self.src(value, ty)?, formatted }
            }
        };
        Ok((handle, op))
    }

    fn list(&self, operands: &[Operand], ty: Ty) -> Result<Box<[Src]>> {
        operands.iter().map(|o| self.src(o, ty)).collect()
    }

    fn handle(&self, o: &Operand) -> Result<Src> {
        match self.src(o, Ty::U64)? {
            handle @ Src::R64(_) => Ok(handle),
            _ => unsupported("texture and surface references"),
        }
    }

    /// `[object, {coordinates}]`.
    fn place(&self, mods: &Mods, o: &Operand, ty: Ty) -> Result<(Src, Place)> {
        let geometry = Geometry::of(mods)?;
        let Operand::Vec(parts) = o else { return unsupported("address form") };
        let [object, coordinates] = parts.as_slice() else { return unsupported("a separate sampler") };
        let coordinates = each(coordinates);
        let layers = usize::from(geometry.is_array());
        let axes = coordinates.get(layers..layers + geometry.axes()).ok_or("too few coordinates")?;
        let layer = if layers > 0 { self.src(&coordinates[0], Ty::U32)? } else { Src::None };
        Ok((self.handle(object)?, Place { geometry, layer, axes: self.list(axes, ty)? }))
    }

    /// The level and how many operands name it.
    fn level(&self, mods: &Mods, geometry: Geometry, rest: &[Operand]) -> Result<(Level, usize)> {
        let get = |n: usize| rest.get(n).ok_or_else(|| "too few operands".to_string());
        if mods.has("level") {
            return Ok((Level::Explicit(self.src(get(0)?, Ty::F32)?), 1));
        }
        if !mods.has("grad") {
            return Ok((Level::Base, 0));
        }
        let slope = |n: usize| {
            let all = each(get(n)?);
            self.list(all.get(..geometry.axes()).ok_or("too few gradients")?, Ty::F32)
        };
        Ok((Level::Gradient(slope(0)?, slope(1)?), 2))
    }

    fn results(&self, mods: &Mods, o: &Operand) -> Result<Results> {
        let (o, resident) = match o {
            Operand::Pair(values, resident) => (&**values, self.dst(resident)?),
            o => (o, Reg::None),
        };
        let ty = mods.types().first().copied().ok_or("no operand type")?;
        let regs: Box<[Reg]> = each(o).iter().map(|o| self.dst(o)).collect::<Result<_>>()?;
        let wants = match ty {
            Ty::F16x2 => 2,
            Ty::F16 | Ty::F32 | Ty::U32 | Ty::S32 => 4,
            _ => return unsupported("result type"),
        };
        if regs.len() != wants { unsupported("vector width") } else { Ok(Results { ty, regs, resident }) }
    }
}

/// The operands in braces, or the one without them.
fn each(o: &Operand) -> &[Operand] {
    match o {
        Operand::Vec(v) => v,
        o => std::slice::from_ref(o),
    }
}

/// The channels or bytes of a surface access.
fn vector(o: &Operand, ty: Ty) -> Result<&[Operand]> {
    match each(o) {
        v if matches!(v.len(), 1 | 2 | 4) && ty != Ty::Pred && ty != Ty::B128 => Ok(v),
        _ => unsupported("vector width or type"),
    }
}

fn query(mods: &Mods) -> Result<Query> {
    let hit = mods.0.iter().find_map(|m| {
        Some(match *m {
            "width" => Query::Width,
            "height" => Query::Height,
            "depth" => Query::Depth,
            "array_size" => Query::Layers,
            "num_mipmap_levels" => Query::Levels,
            "channel_data_type" => Query::ChannelType,
            "channel_order" => Query::ChannelOrder,
            "normalized_coords" => Query::IsNormalised,
            _ => return None,
        })
    });
    hit.ok_or_else(|| "query".into())
}
