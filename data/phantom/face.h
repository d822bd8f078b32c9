/* face.h -- made-up people and their photographs, from formulas.
 *
 * A head is a solid given by its distance: in its own frame x runs to the
 * right of who looks at it, y up, z out of the face, and the distance from the
 * middle of the head to its top is about 1. A photograph turns it by yaw,
 * pitch and roll as 300W-LP has them,
 *     R = Rx(-pitch) Ry(-yaw) Rz(-roll),
 * the y of the picture up and z towards the camera: positive yaw looks to the
 * left edge of the picture, positive pitch up, positive roll leans to the
 * right edge. The camera is far away: what is at (x, y, z) shows at column
 * column + zoom x, row row - zoom y. Rays are followed to the surface by the
 * distance (Hart, "Sphere tracing", The Visual Computer 12, 1996). */
#ifndef SEG_DATA_PHANTOM_FACE_H
#define SEG_DATA_PHANTOM_FACE_H
#include <stdbool.h>
#include <stdint.h>

enum { FACE_POINTS = 68, FACE_BLOBS = 4 };

/* What a person brings to every photograph. Lengths are in the unit above,
 * colours 0 .. 1 of red, green, blue. */
typedef struct Face {
    float wide, tall, deep;      /* radii of the skull                        */
    float jaw, chin;             /* half width of the jaw, depth of the chin  */
    float nose_long, nose_wide;  /* how far it stands out, radius of its tip  */
    float eye_apart, eye_size;   /* half distance of the eyes, radius         */
    float lips, ear;             /* half height, half length                  */
    float hair_thick, hair_line; /* above the skull; where the forehead ends */
    float hair_low;              /* how far down it hangs at back and sides   */
    float skin[3], hair[3], iris[3], mouth[3], cloth[3];
} Face;

/* What a photograph has of its own. */
typedef struct FaceLook {
    double yaw_deg, pitch_deg, roll_deg;
    float turn[3][3];        /* R: from the head to the picture              */
    float column, row, zoom; /* pixels                                       */
    float light[3], ambient, shine; /* towards the light, length 1           */
    float tint[3];    /* of the light                                 */
    float wall[2][3]; /* background at the left and right edge        */
    float blob[FACE_BLOBS][7]; /* x, y, radius of the picture's size, colour,
                                * strength                                   */
    uint64_t seed;
    uint32_t person, photo; /* key of the noise */
    float noise;            /* sigma, of 1      */
} FaceLook;

/* Functions of (seed, person) and (seed, person, photo) alone. Yaw within 75
 * degrees, pitch 40, roll 30. */
void face_draw(Face *f, uint64_t seed, uint32_t person);
void face_look(FaceLook *v, uint64_t seed, uint32_t person, uint32_t photo,
               int size, double noise);

/* Sets `turn` from the angles. */
void face_turn(FaceLook *v);

/* size x size pixels, red, green, blue. */
void face_render(const Face *f, const FaceLook *v, int size, uint8_t *rgb);

/* The 68 landmarks of 300-W in their order, in pixels, columns then rows;
 * also those that the head hides. */
void face_points(const Face *f, const FaceLook *v, double out[2][FACE_POINTS]);
#endif
