//! Sampling of textures and access to surfaces.
//!
//! Coordinates have eight fractional bits when they are filtered, as on hardware, so the weight of a texel is a
//! multiple of 1/256. Sums of weighted texels are taken in double precision.

use crate::exec::fault::{Fault, FaultKind};
use crate::exec::float;
use crate::exec::lanes::lanes;
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::Instr;
use crate::ptx::isa::operand::{Round, Space, Ty};
use crate::ptx::isa::texture::{Geometry, Level, Outside, Place, Query, Results, TextureOp};
use crate::texture::{self, Address, Channel, Image, Surface, Texture};

/// A position on one axis and how much of 256 it counts; `None` is the border.
type Taps = [(Option<u32>, u32); 2];

/// Four channels: integers, or the bits of single-precision values.
type Texel = [u32; 4];

/// The places of one instruction, a row of lanes for each axis.
struct Rows {
    layer: [u32; 32],
    axes: Vec<[u32; 32]>,
}

impl Rows {
    fn lane(&self, l: usize) -> [u32; 3] {
        std::array::from_fn(|a| self.axes.get(a).map_or(0, |row| row[l]))
    }
    fn floats(&self, l: usize) -> [f64; 3] {
        self.lane(l).map(|v| f64::from(f32::from_bits(v)))
    }
}

/// Where a lane samples.
struct Point {
    geometry: Geometry,
    layer: u32,
    at: [f64; 3],
}

enum Filtered {
    Integers(Texel),
    Sum([f64; 4]),
}

impl Warp {
    pub fn texture(&mut self, op: &TextureOp, ins: &Instr, m: u32, f: &Frame, env: &mut Env) -> Result<(), Fault> {
        let handles = self.read::<u64>(ins.a, f, env);
        // Lanes with the same handle, which is nearly always all of them, look the object up once.
        let mut rest = m;
        while rest != 0 {
            let handle = handles[rest.trailing_zeros() as usize];
            let part = lanes(rest).filter(|&l| handles[l] == handle).fold(0, |s, l| s | (1 << l));
            rest &= !part;
            let unknown = || Fault::new(FaultKind::IllegalAddress, &format!("no texture or surface {handle:#x}"));
            match op {
                TextureOp::Sample { .. } | TextureOp::Gather { .. } | TextureOp::QueryTexture { .. } => {
                    let t = texture::texture(handle).ok_or_else(unknown)?;
                    self.sample_lanes(op, &t, ins, part, f, env)?;
                }
                _ => {
                    let s = texture::surface(handle).ok_or_else(unknown)?;
                    self.surface_lanes(op, &s, ins, part, f, env)?;
                }
            }
        }
        Ok(())
    }

    fn rows(&self, p: &Place, f: &Frame, env: &Env) -> Rows {
        Rows { layer: self.read(p.layer, f, env), axes: p.axes.iter().map(|&s| self.read(s, f, env)).collect() }
    }

    fn sample_lanes(
        &mut self,
        op: &TextureOp,
        t: &Texture,
        ins: &Instr,
        m: u32,
        f: &Frame,
        env: &mut Env,
    ) -> Result<(), Fault> {
        let mut texels = [[0; 4]; 32];
        match op {
            TextureOp::Sample { place, integer, level, to } => {
                let at = self.rows(place, f, env);
                let levels = self.levels(t, place.geometry, &at, level, f, env);
                for l in lanes(m) {
                    let layer = at.layer[l];
                    texels[l] = if *integer {
                        let (image, at) = (&t.levels[0], at.lane(l));
                        let texel = [0, 1, 2].map(|a| {
                            let used = a < place.geometry.axes();
                            if used { resolve(t.address[a], (at[a] as i32).into(), image.size[a]) } else { Some(0) }
                        });
                        self.texel(env, l, t, image, texel, layer.min(image.layers - 1))?
                    } else {
                        self.sample(env, l, t, &Point { geometry: place.geometry, layer, at: at.floats(l) }, levels[l])?
                    };
                }
                self.deliver(&texels, t, to, m, f);
            }
            TextureOp::Gather { place, channel, to } => {
                let at = self.rows(place, f, env);
                for l in lanes(m) {
                    let image = &t.levels[0];
                    let [x, y] = [0, 1].map(|a| taps(t, image, a, at.floats(l)[a], true));
                    // Against the clock, from the lower left.
                    for (k, (x, y)) in [(x[0], y[1]), (x[1], y[1]), (x[1], y[0]), (x[0], y[0])].into_iter().enumerate()
                    {
                        let place = [x.0, y.0, Some(0)];
                        texels[l][k] = self.texel(env, l, t, image, place, 0)?[*channel];
                    }
                }
                self.deliver(&texels, t, to, m, f);
            }
            TextureOp::QueryTexture { query, level } => {
                let level = self.read::<u32>(*level, f, env);
                let mut v = [0; 32];
                for l in lanes(m) {
                    let image = &t.levels[(level[l] as usize).min(t.levels.len() - 1)];
                    v[l] = match query {
                        Query::Levels => t.levels.len() as u32,
                        Query::IsNormalised => u32::from(t.normalised),
                        other => ask(image, *other),
                    };
                }
                self.write(ins.d, m, &v, f);
            }
            _ => {}
        }
        Ok(())
    }

    fn deliver(&mut self, texels: &[Texel; 32], t: &Texture, to: &Results, m: u32, f: &Frame) {
        let half = |v: u32| {
            let half = if t.integer { v as u16 } else { float::f16_from(f32::from_bits(v).into(), Round::Nearest) };
            u32::from(half)
        };
        for (k, &reg) in to.regs.iter().enumerate() {
            let row: [u32; 32] = std::array::from_fn(|l| match to.ty {
                Ty::F16 => half(texels[l][k]),
                Ty::F16x2 => half(texels[l][2 * k]) | (half(texels[l][2 * k + 1]) << 16),
                _ => texels[l][k],
            });
            self.write(reg, m, &row, f);
        }
        self.write_pred(to.resident, m, u32::MAX, f);
    }

    /// The level of each lane, before the texture's own limits.
    fn levels(&self, t: &Texture, g: Geometry, at: &Rows, level: &Level, f: &Frame, env: &Env) -> [f32; 32] {
        match level {
            Level::Base => [0.0; 32],
            Level::Explicit(s) => self.read(*s, f, env),
            Level::Gradient(dx, dy) => {
                let [dx, dy] =
                    [dx, dy].map(|d| Rows { layer: [0; 32], axes: d.iter().map(|&s| self.read(s, f, env)).collect() });
                std::array::from_fn(|l| {
                    let spans = [&dx, &dy].map(|d| span(&t.levels[0], g, at.floats(l), d.floats(l)));
                    spans[0].max(spans[1]).log2() as f32
                })
            }
        }
    }

    fn sample(&mut self, env: &mut Env, lane: usize, t: &Texture, p: &Point, level: f32) -> Result<Texel, Fault> {
        // Limits out of order, or no number, are no reason to stop.
        let level = f64::from((level + t.level_bias).max(t.level_min).min(t.level_max).max(0.0));
        let last = t.levels.len() - 1;
        // In levels and 256ths of the way to the next.
        let fixed = if t.blends_levels { (level * 256.0).round() } else { (level + 0.5).floor() * 256.0 };
        let fixed = (fixed as usize).min(last * 256);
        let (low, part) = (fixed / 256, (fixed % 256) as f64 / 256.0);
        let mut sum = match self.filter(env, lane, t, &t.levels[low], p)? {
            Filtered::Integers(texel) => return Ok(texel),
            Filtered::Sum(sum) => sum,
        };
        if part > 0.0
            && let Filtered::Sum(next) = self.filter(env, lane, t, &t.levels[low + 1], p)?
        {
            sum = std::array::from_fn(|k| (1.0 - part) * sum[k] + part * next[k]);
        }
        Ok(sum.map(|v| (v as f32).to_bits()))
    }

    /// The texels of one level around a point, weighted; a texture of integers has one, which is the answer.
    fn filter(&mut self, env: &mut Env, lane: usize, t: &Texture, image: &Image, p: &Point) -> Result<Filtered, Fault> {
        let none = [(Some(0), 256), (Some(0), 0)];
        let (axes, slice) = if p.geometry.is_cube() {
            let (face, major, u, v) = face(p.at);
            let on_edge = |v: f64| if major == 0.0 { 0.5 } else { (v / major + 1.0) / 2.0 };
            let axis = |v: f64, a: usize| {
                let n = image.size[a];
                positions(on_edge(v) * f64::from(n), t.linear).map(|(i, w)| (resolve(Address::Clamp, i, n), w))
            };
            let cubes = image.layers / 6;
            let cube = if p.geometry == Geometry::Cube { 0 } else { p.layer.min(cubes.saturating_sub(1)) };
            ([axis(u, 0), axis(v, 1), none], (6 * cube + face).min(image.layers - 1))
        } else {
            let axis = |a: usize| if a < p.geometry.axes() { taps(t, image, a, p.at[a], t.linear) } else { none };
            ([axis(0), axis(1), axis(2)], p.layer.min(image.layers - 1))
        };
        let plane = weights(axes[0][1].1, axes[1][1].1);
        let mut sum = [0.0; 4];
        for z in axes[2] {
            for (y, row) in axes[1].iter().zip(plane) {
                for (x, weight) in axes[0].iter().zip(row) {
                    let weight = weight * z.1;
                    if weight == 0 {
                        continue;
                    }
                    let texel = self.texel(env, lane, t, image, [x.0, y.0, z.0], slice)?;
                    if t.integer && !t.linear {
                        return Ok(Filtered::Integers(texel));
                    }
                    for (sum, v) in sum.iter_mut().zip(texel) {
                        let v = match image.channel {
                            _ if !t.integer => f64::from(f32::from_bits(v)),
                            Channel::S8 | Channel::S16 | Channel::S32 => f64::from(v as i32),
                            _ => f64::from(v),
                        };
                        *sum += f64::from(weight) / f64::from(1 << 16) * v;
                    }
                }
            }
        }
        // No document says so: an H200 rounds 8 and 16 bits to the nearest, halves upwards, and 32 bits downwards.
        if t.integer {
            let half = if matches!(image.channel, Channel::U32 | Channel::S32) { 0.0 } else { 0.5 };
            return Ok(Filtered::Integers(sum.map(|v| (v + half).floor() as i64 as u32)));
        }
        Ok(Filtered::Sum(sum))
    }

    /// A texel as the texture's read mode has it.
    fn texel(
        &mut self,
        env: &mut Env,
        lane: usize,
        t: &Texture,
        image: &Image,
        place: [Option<u32>; 3],
        layer: u32,
    ) -> Result<Texel, Fault> {
        let mut texel = [0; 4];
        let [Some(x), Some(y), Some(z)] = place else {
            for (to, v) in texel.iter_mut().zip(t.border).take(image.channels as usize) {
                *to = v.to_bits();
            }
            return Ok(texel);
        };
        let at = image.base
            + u64::from(layer.max(z)) * image.slice
            + u64::from(y) * image.pitch
            + u64::from(x) * image.texel_bytes();
        let bytes = image.channel.bytes();
        for (k, to) in texel.iter_mut().enumerate().take(image.channels as usize) {
            let raw = self.load(env, lane, Space::Global, at + k as u64 * u64::from(bytes), bytes)? as u32;
            *to = if t.integer { widen(image.channel, raw) } else { value(image.channel, raw).to_bits() };
            if t.srgb && k < 3 {
                *to = linear_light(f32::from_bits(*to)).to_bits();
            }
        }
        Ok(texel)
    }

    fn surface_lanes(
        &mut self,
        op: &TextureOp,
        s: &Surface,
        ins: &Instr,
        m: u32,
        f: &Frame,
        env: &mut Env,
    ) -> Result<(), Fault> {
        let image = &s.image;
        match op {
            TextureOp::QuerySurface(query) => {
                self.write(ins.d, m, &[ask(image, *query); 32], f);
            }
            TextureOp::Load { place, outside, ty, regs } => {
                let at = self.rows(place, f, env);
                let each = ty.bytes();
                let mut rows = [[0u64; 32]; 4];
                for l in lanes(m) {
                    let bytes = u64::from(each) * regs.len() as u64;
                    let Some(p) = element(image, place, &at, l, bytes, false, *outside)? else { continue };
                    for (k, row) in rows.iter_mut().enumerate().take(regs.len()) {
                        row[l] = self.load(env, l, Space::Global, p + k as u64 * u64::from(each), each)?;
                    }
                }
                for (reg, row) in regs.iter().zip(&rows) {
                    self.write(*reg, m, row, f);
                }
            }
            TextureOp::Store { place, outside, ty, values, formatted } => {
                let at = self.rows(place, f, env);
                let each = if *formatted { image.channel.bytes() } else { ty.bytes() };
                let count = if *formatted { image.channels as usize } else { values.len() };
                let values: Vec<[u64; 32]> = values.iter().map(|&v| self.read(v, f, env)).collect();
                for l in lanes(m) {
                    let bytes = u64::from(each) * count as u64;
                    let Some(p) = element(image, place, &at, l, bytes, *formatted, *outside)? else { continue };
                    for k in 0..count {
                        let v = values.get(k).map_or(0, |row| row[l]);
                        let v = if *formatted { narrow(image.channel, v as u32) } else { v };
                        self.store(env, l, Space::Global, p + k as u64 * u64::from(each), each, v)?;
                    }
                }
            }
            TextureOp::Reduce { place, outside, op, ty, value, formatted } => {
                let at = self.rows(place, f, env);
                let v = self.read::<u64>(*value, f, env);
                let signed = *formatted && image.channel == Channel::S32;
                let ty = if signed { Ty::S32 } else { *ty };
                for l in lanes(m) {
                    let bytes = u64::from(ty.bytes());
                    let Some(p) = element(image, place, &at, l, bytes, *formatted, *outside)? else { continue };
                    self.atomic(env, l, Space::Global, (*op, ty), p, (v[l], 0))?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The texels on both sides of a coordinate; the second counts nothing without a filter.
fn taps(t: &Texture, image: &Image, axis: usize, at: f64, linear: bool) -> Taps {
    let n = image.size[axis];
    let at = if t.normalised { at * f64::from(n) } else { at };
    positions(at, linear).map(|(i, weight)| (resolve(t.address[axis], i, n), weight))
}

fn positions(at: f64, linear: bool) -> [(i64, u32); 2] {
    // Beyond this single precision has no fraction, and no texture has texels.
    let at = if at.is_finite() { at.clamp(-1e9, 1e9) } else { 0.0 };
    if !linear {
        let i = at.floor() as i64;
        return [(i, 256), (i + 1, 0)];
    }
    let fixed = (at * 256.0 + 0.5).floor() as i64 - 128;
    let (i, part) = (fixed >> 8, (fixed & 255) as u32);
    [(i, 256 - part), (i + 1, part)]
}

/// Brings a texel's number into the texture; `None` is the border.
fn resolve(mode: Address, i: i64, n: u32) -> Option<u32> {
    let n = i64::from(n);
    let i = match mode {
        Address::Wrap => i.rem_euclid(n),
        Address::Clamp => i.clamp(0, n - 1),
        Address::Mirror => {
            let i = i.rem_euclid(2 * n);
            if i < n { i } else { 2 * n - 1 - i }
        }
        Address::Border if (0..n).contains(&i) => i,
        Address::Border => return None,
    };
    Some(i as u32)
}

/// What the four texels around a point count, in 256ths, by row and column; `a` and `b` say how far the point is on
/// its way to the second column and the second row. An H200 rounds the weight of the far corner and takes the others so
/// that rows and columns come out right (`textures.cu` of the GPU suite has the same bits there).
fn weights(a: u32, b: u32) -> [[u32; 2]; 2] {
    let far = (a * b + 128) / 256;
    [[256 + far - a - b, a - far], [b - far, far]]
}

/// The face of a cube a direction meets, the direction's length towards it, and its two coordinates on it.
fn face([x, y, z]: [f64; 3]) -> (u32, f64, f64, f64) {
    let (i, j, k) = (x.abs(), y.abs(), z.abs());
    let face = if k >= i && k >= j {
        if z >= 0.0 { 4 } else { 5 }
    } else if j >= i {
        if y >= 0.0 { 2 } else { 3 }
    } else if x >= 0.0 {
        0
    } else {
        1
    };
    let [m, s, t] = on_face(face, [x, y, z]);
    (face, m, s, t)
}

fn on_face(face: u32, [x, y, z]: [f64; 3]) -> [f64; 3] {
    match face {
        0 => [x, -z, -y],
        1 => [-x, z, -y],
        2 => [y, x, z],
        3 => [-y, x, -z],
        4 => [z, x, -y],
        _ => [-z, -x, -y],
    }
}

/// How many texels of the largest level one step of a gradient goes over.
fn span(image: &Image, g: Geometry, at: [f64; 3], step: [f64; 3]) -> f64 {
    let step = if g.is_cube() {
        let (face, m, s, t) = face(at);
        let [dm, ds, dt] = on_face(face, step);
        let slope = |v: f64, dv: f64| (dv * m - v * dm) / (2.0 * m * m);
        [slope(s, ds), slope(t, dt), 0.0]
    } else {
        step
    };
    let square = |a: usize| (step[a] * f64::from(image.size[a])).powi(2);
    (0..g.axes()).map(square).sum::<f64>().sqrt()
}

/// An integer of a channel, widened to a register.
fn widen(channel: Channel, raw: u32) -> u32 {
    match channel {
        Channel::S8 => i32::from(raw as i8) as u32,
        Channel::S16 => i32::from(raw as i16) as u32,
        _ => raw,
    }
}

/// A channel as a number; integers become fractions of their largest.
fn value(channel: Channel, raw: u32) -> f32 {
    match channel {
        Channel::U8 => raw as f32 / 255.0,
        Channel::U16 => raw as f32 / 65535.0,
        Channel::S8 => (f32::from(raw as i8) / 127.0).max(-1.0),
        Channel::S16 => (f32::from(raw as i16) / 32767.0).max(-1.0),
        Channel::F16 => float::f16_to(raw as u16),
        Channel::U32 | Channel::S32 | Channel::F32 => f32::from_bits(raw),
    }
}

/// The inverse of sRGB's transfer function.
fn linear_light(v: f32) -> f32 {
    let v = f64::from(v);
    (if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }) as f32
}

/// A register stored into a channel; what does not fit becomes the nearest that does.
fn narrow(channel: Channel, v: u32) -> u64 {
    match channel {
        Channel::U8 => v.min(0xff).into(),
        Channel::U16 => v.min(0xffff).into(),
        Channel::S8 => ((v as i32).clamp(-0x80, 0x7f) as u8).into(),
        Channel::S16 => ((v as i32).clamp(-0x8000, 0x7fff) as u16).into(),
        Channel::F16 => float::f16_from(f32::from_bits(v).into(), Round::Nearest).into(),
        Channel::U32 | Channel::S32 | Channel::F32 => v.into(),
    }
}

/// The numbers that PTX has for formats are OpenCL's.
fn ask(image: &Image, query: Query) -> u32 {
    match query {
        Query::Width => image.size[0],
        Query::Height => image.size[1],
        Query::Depth => image.size[2],
        Query::Layers => image.layers,
        Query::Levels => 1,
        Query::IsNormalised => 0,
        Query::ChannelType => match image.channel {
            Channel::S8 => 0x10d7,
            Channel::S16 => 0x10d8,
            Channel::S32 => 0x10d9,
            Channel::U8 => 0x10da,
            Channel::U16 => 0x10db,
            Channel::U32 => 0x10dc,
            Channel::F16 => 0x10dd,
            Channel::F32 => 0x10de,
        },
        Query::ChannelOrder => match image.channels {
            1 => 0x10b0,
            2 => 0x10b2,
            _ => 0x10b5,
        },
    }
}

/// Where a surface access lands; `None` when it does nothing.
fn element(
    image: &Image,
    place: &Place,
    at: &Rows,
    lane: usize,
    bytes: u64,
    formatted: bool,
    outside: Outside,
) -> Result<Option<u64>, Fault> {
    let [x, y, z] = at.lane(lane).map(|v| i64::from(v as i32));
    let layer = i64::from(at.layer[lane] as i32);
    let texel = image.texel_bytes() as i64;
    let x = if formatted { x * texel } else { x };
    let row = i64::from(image.size[0]) * texel;
    // Planes are depth or layers, whichever the array has.
    let (plane, planes) = match place.geometry {
        Geometry::D3 => (z, image.size[2]),
        Geometry::D1Array | Geometry::D2Array => (layer, image.layers),
        _ => (0, 1),
    };
    let given = [x, y, plane];
    let most = [row - bytes as i64, i64::from(image.size[1]) - 1, i64::from(planes) - 1];
    let inside = (0..3).all(|a| (0..=most[a]).contains(&given[a]));
    let [x, y, plane] = match outside {
        _ if inside => given,
        Outside::Clamp if most[0] >= 0 => [0, 1, 2].map(|a| given[a].clamp(0, most[a])),
        Outside::Clamp | Outside::Zero => return Ok(None),
        Outside::Trap => {
            let what = format!("surface access of {bytes} bytes outside, at {given:?}");
            return Err(Fault::new(FaultKind::Trap, &what));
        }
    };
    if x % bytes as i64 != 0 && !formatted {
        return Err(Fault::new(FaultKind::Misaligned, &format!("surface access of {bytes} bytes at {x}")));
    }
    Ok(Some(image.base + plane as u64 * image.slice + y as u64 * image.pitch + x as u64))
}
