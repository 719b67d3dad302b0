# Makes one script of the .lua files, as it is sent to the server: cmake -DFOLDER=… -DSCRIPT=… -DMANY=… -DOUTPUT=… -P assemble.cmake
# dofile('library.lua') becomes what library.lua returns, loadfile('fence.lua') the function that fence.lua is; with MANY,
# the whole script becomes a function within many.lua.
# Comments and indentation are left out. No string of a script contains "--".
function(read_script out name)
  file(READ ${FOLDER}/${name}.lua text)
  string(REGEX REPLACE "[ \t]*--[^\n]*" "" text "${text}")
  string(REGEX REPLACE "\n[ \t\n]+" "\n" text "\n${text}")
  string(REGEX REPLACE "^\n" "" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

read_script(text ${SCRIPT})
read_script(library library)
read_script(fence fence)
string(REPLACE "dofile('library.lua')" "(function()\n${library}end)()" text "${text}")
string(REPLACE "loadfile('fence.lua')" "function(...)\n${fence}end" text "${text}")
if(MANY)
  read_script(many many)
  string(REPLACE "loadfile('script')" "function(KEYS, ARGV)\n${text}end" text "${many}")
endif()
file(WRITE ${OUTPUT} "${text}")
