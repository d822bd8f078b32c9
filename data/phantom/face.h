/* face.h -- synthetic people and their photographs, from formulas.
 *
 * A head is a solid defined by a signed distance function. In its own frame x
 * runs to the right as seen by the viewer, y up, z out of the face, and the
 * distance from the middle of the head to its top is about 1. A photograph
 * rotates it by yaw, pitch and roll in the convention of 300W-LP,
 *     R = Rx(-pitch) Ry(-yaw) Rz(-roll),
 * with y up in the picture and z towards the camera: positive yaw looks to the
 * left edge of the picture, positive pitch up, positive roll leans to the right
 * edge. The camera is far away (orthographic projection): point (x, y, z)
 * appears at column column + zoom x, row row - zoom y. Rays are marched to the
 * surface by the distance (Hart, "Sphere tracing", The Visual Computer 12,
 * 1996). */
#ifndef SEG_DATA_PHANTOM_FACE_H
#define SEG_DATA_PHANTOM_FACE_H
#include <stdbool.h>
#include <stdint.h>

enum { FACE_POINTS = 68, FACE_BLOBS = 4 };

/* Properties of a person in every photograph. Lengths are in the unit above,
 * colours 0 .. 1 of red, green, blue. */
typedef struct Face {
    float wide, tall, deep;      /* radii of the skull                        */
    float jaw, chin;             /* half width of the jaw, depth of the chin  */
    float nose_long, nose_wide;  /* protrusion, radius of the tip */
    float eye_apart, eye_size;   /* half distance of the eyes, radius         */
    float lips, ear;             /* half height, half length                  */
    float hair_thick, hair_line; /* above the skull; where the forehead ends */
    float hair_low;              /* length at back and sides */
    float skin[3], hair[3], iris[3], mouth[3], cloth[3];
} Face;

/* Properties of one photograph. */
typedef struct FaceLook {
    double yaw_deg, pitch_deg, roll_deg;
    float turn[3][3];        /* R: from the head to the picture */
    float column, row, zoom; /* pixels                                       */
    float light[3], ambient, shine; /* direction to the light, length 1 */
    float tint[3];                  /* colour of the light */
    float wall[2][3];               /* background at the left and right edge */
    float blob[FACE_BLOBS][7]; /* x, y, radius relative to the picture, colour,
                                * strength */
    uint64_t seed;
    uint32_t person, photo; /* stream of the noise */
    float noise;            /* standard deviation, range 0 .. 1 */
} FaceLook;

/* Draw a person and a photograph: functions of (seed, person) and of (seed,
 * person, photo) alone. Yaw within 75 degrees, pitch 40, roll 30. */
void face_draw(Face *f, uint64_t seed, uint32_t person);
void face_look(FaceLook *v, uint64_t seed, uint32_t person, uint32_t photo,
               int size, double noise);

/* Sets `turn` from the angles. */
void face_turn(FaceLook *v);

/* Renders size x size pixels, red, green, blue. */
void face_render(const Face *f, const FaceLook *v, int size, uint8_t *rgb);

/* Computes the 68 landmarks of 300-W in their order, in pixels, columns then
 * rows; including hidden ones. */
void face_points(const Face *f, const FaceLook *v, double out[2][FACE_POINTS]);
#endif
