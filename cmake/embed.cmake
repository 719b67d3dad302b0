# Turns a text file into a C header with one string: cmake -DINPUT=… -DOUTPUT=… -DSYMBOL=… -P embed.cmake
# The string is a byte array, since ISO C limits the length of string literals.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
get_filename_component(name ${INPUT} NAME)
file(SHA1 ${INPUT} sha1)
file(WRITE ${OUTPUT} "/* Generated from ${name}. */\n#define ${SYMBOL}_sha1 \"${sha1}\"\nstatic const char ${SYMBOL}_text[] = {\n${bytes}0};\n")
