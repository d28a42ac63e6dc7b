//! A call's arguments, as the structures `cu…_params` of CUPTI's headers have them: in order, as in C.

macro_rules! parameters {
    ($($name:ident($($type:ident),*);)*) => {
        $(
            #[repr(C)]
            pub struct $name<$($type),*>($(pub $type),*);
        )*
    };
}
parameters! {
    Parameters0();
    Parameters1(A);
    Parameters2(A, B);
    Parameters3(A, B, C);
    Parameters4(A, B, C, D);
    Parameters5(A, B, C, D, E);
    Parameters6(A, B, C, D, E, F);
    Parameters7(A, B, C, D, E, F, G);
    Parameters8(A, B, C, D, E, F, G, H);
    Parameters9(A, B, C, D, E, F, G, H, I);
    Parameters10(A, B, C, D, E, F, G, H, I, J);
    Parameters11(A, B, C, D, E, F, G, H, I, J, K);
    Parameters12(A, B, C, D, E, F, G, H, I, J, K, L);
    Parameters15(A, B, C, D, E, F, G, H, I, J, K, L, M, N, O);
    Parameters16(A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P);
}
