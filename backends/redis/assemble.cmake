# Makes one script from the .lua files, as it is sent to the server:
# cmake -DFOLDER=… -DSCRIPT=… -DVARIANT=… -DOUTPUT=… -P assemble.cmake
# dofile('library.lua') becomes what library.lua returns, loadfile('fence.lua') a function with the text of fence.lua.
# VARIANT many: the whole script becomes a function within many.lua. VARIANT cluster: the script follows cluster.lua, and
# uses the functions of that instead of its own.
# Comments and indentation are removed. No string of a script contains "--".
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
if(VARIANT STREQUAL "many")
  read_script(many many)
  string(REPLACE "loadfile('script')" "function(KEYS, ARGV)\n${text}end" text "${many}")
elseif(VARIANT STREQUAL "cluster")
  set(client "'dlock:' \\.\\. string\\.sub\\(([a-z]+), 1, 24\\)")
  string(REGEX REPLACE "redis\\.pcall\\('PUBLISH', ${client}, " "publish(\\1, " text "${text}")
  string(REGEX REPLACE "call\\('PUBSUB', 'NUMSUB', ${client}\\)\\[2\\]" "listeners(\\1)" text "${text}")
  if(text MATCHES "'dlock:' \\.\\.|PUBLISH|PUBSUB")
    message(FATAL_ERROR "${SCRIPT}.lua does \"${CMAKE_MATCH_0}\" in a way that assemble.cmake does not know")
  endif()
  read_script(cluster cluster)
  string(PREPEND text
    "local listeners, publish = (function()\n${cluster}end)()\n")
endif()
file(WRITE ${OUTPUT} "${text}")
